// The status page as it is written, with @NONCE@, @VERSION@ and @STATE@ ("in", "out", "refused") to be filled in.
//
// Internal to src/api.
#pragma once

#include <string_view>

namespace headgate::api {

[[nodiscard]] std::string_view status_page() noexcept;

}  // namespace headgate::api

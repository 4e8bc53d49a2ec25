// JSON that operations read and write. Files that build values include <nlohmann/json.hpp> themselves.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "engine/simulate_json.h"
#include "headgate/result.h"

namespace headgate::service {

using Json = nlohmann::ordered_json;
using engine::number_json;

// The text as JSON without a field twice, at most 32 deep. An Error says what is wrong.
[[nodiscard]] Result<Json> json_of(std::string_view text);
// The text as an object with no other fields than these.
[[nodiscard]] Result<Json> fields_of(std::string_view text, std::span<const std::string_view> fields);
// One line; bytes that are not UTF-8 are replaced.
[[nodiscard]] std::string text_of(const Json& json);
[[nodiscard]] Json text_or_null(const std::string& text);

}  // namespace headgate::service

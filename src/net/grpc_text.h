// The few texts and bytes that gRPC adds to HTTP/2.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/clock.h"

namespace headgate::net {

// "100m": at most eight digits and a unit. nullopt: it is something else.
[[nodiscard]] std::optional<Nanos> parse_grpc_timeout(std::string_view text) noexcept;

// Whether it is application/grpc, perhaps with +proto or parameters.
[[nodiscard]] bool is_grpc_content_type(std::string_view type) noexcept;

// As grpc-message has it: what is not printable ASCII becomes %XX. At most 1 kB of it.
[[nodiscard]] std::string percent_encoded(std::string_view text);

inline constexpr std::size_t kGrpcPrefix = 5;
// What stands before a message that is not compressed.
[[nodiscard]] std::array<char, kGrpcPrefix> grpc_prefix(std::uint32_t size) noexcept;

}  // namespace headgate::net

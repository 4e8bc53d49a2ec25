// Which Host and Origin a browser may come with.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headgate::service {

// "example.com:8080" or "[::1]:80" taken apart; the host in lower case, without brackets.
struct HostPort {
  std::string host;
  std::string port;  // empty: none was named
  friend bool operator==(const HostPort&, const HostPort&) = default;
};
[[nodiscard]] std::optional<HostPort> parse_host(std::string_view text);

// Whether no stranger's DNS can have brought a browser here under that name: localhost, an IP address, or one of
// `hosts` (with a port: only on that port).
[[nodiscard]] bool is_trusted_host(std::string_view host, std::span<const std::string> hosts);

// Whether the origin is that of the host itself, or one of `hosts`.
[[nodiscard]] bool is_trusted_origin(std::string_view origin, std::string_view host,
                                     std::span<const std::string> hosts);

}  // namespace headgate::service

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "net/io.h"

namespace headgate::net {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::size_t kMaxHostBytes = 253;

Error malformed(std::string_view text, std::string_view why) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("an address must be host:port, [::1]:port or unix:/path, got \"{}\" ({})",
                      base::shortened(text, 100), why)};
}

Result<Address> parse_unix(std::string_view text) {
  const std::string_view path = text.substr(kUnixPrefix.size());
  if (path.empty()) return malformed(text, "the path is missing");
  if (path.find('\0') != std::string_view::npos) return malformed(text, "the path holds a NUL");
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return malformed(text, fmt::format("the path must be at most {} bytes", sizeof(sockaddr_un::sun_path) - 1));
  }
  Address address;
  address.path = path;
  return address;
}

bool is_ipv6(const std::string& host) noexcept {
  in6_addr parsed{};
  return ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

bool is_host_name(std::string_view host) noexcept {
  return host.size() <= kMaxHostBytes && std::all_of(host.begin(), host.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
                  c == '_';
         });
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return parse_unix(text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return malformed(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.empty()) return malformed(text, "the host is missing; 127.0.0.1 is this machine, 0.0.0.0 is everywhere");

  Address address;
  if (host.front() == '[') {
    if (host.back() != ']') return malformed(text, "the ] is missing");
    address.host = host.substr(1, host.size() - 2);
    if (!is_ipv6(address.host)) return malformed(text, "what is in brackets must be an IPv6 address");
  } else {
    if (host.find(':') != std::string_view::npos) return malformed(text, "an IPv6 address goes in brackets");
    if (!is_host_name(host)) return malformed(text, "that is no host name");
    address.host = host;
  }
  unsigned value = 0;
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (port.empty() || problem != std::errc{} || end != port.data() + port.size() || value > 65535) {
    return malformed(text, "the port must be a number from 0 to 65535");
  }
  address.port = static_cast<std::uint16_t>(value);
  return address;
}

bool is_loopback(const Address& address) noexcept {
  if (!address.path.empty()) return true;
  if (address.host == "localhost") return true;
  in_addr four{};
  if (::inet_pton(AF_INET, address.host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.host.c_str(), &six) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&six)) return six.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace headgate::net

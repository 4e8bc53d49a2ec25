#include "service/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "base/ascii.h"

namespace headgate::service {
namespace {

constexpr std::size_t kMaxHostBytes = 300;

bool is_host_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || base::is_digit(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
}

bool is_ip(const std::string& host) noexcept {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_listed(const HostPort& asked, std::span<const std::string> hosts) {
  return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& entry) {
    const auto listed = parse_host(entry);
    return listed && listed->host == asked.host && (listed->port.empty() || listed->port == asked.port);
  });
}

}  // namespace

std::optional<HostPort> parse_host(std::string_view text) {
  if (text.empty() || text.size() > kMaxHostBytes) return std::nullopt;
  std::string_view host = text;
  std::string_view port;
  std::size_t colon = std::string_view::npos;
  if (text.front() == '[') {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    if (end + 1 < text.size()) colon = end + 1;
    if (colon != std::string_view::npos && text[colon] != ':') return std::nullopt;
  } else {
    colon = text.find(':');
    host = text.substr(0, colon);
  }
  if (colon != std::string_view::npos) {
    port = text.substr(colon + 1);
    if (port.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), base::is_digit)) return std::nullopt;
  }
  HostPort parsed;
  parsed.port = port;
  parsed.host = base::to_lower(host);
  // One dot at the end names the same host.
  if (parsed.host.size() > 1 && parsed.host.back() == '.') parsed.host.pop_back();
  if (parsed.host.empty() || !std::all_of(parsed.host.begin(), parsed.host.end(), is_host_character)) {
    return std::nullopt;
  }
  return parsed;
}

bool is_trusted_host(std::string_view host, std::span<const std::string> hosts) {
  const auto parsed = parse_host(host);
  if (!parsed) return false;
  return parsed->host == "localhost" || is_ip(parsed->host) || is_listed(*parsed, hosts);
}

bool is_trusted_origin(std::string_view origin, std::string_view host, std::span<const std::string> hosts) {
  std::string_view usual_port;
  if (origin.starts_with("http://")) {
    usual_port = "80";
    origin.remove_prefix(7);
  } else if (origin.starts_with("https://")) {
    usual_port = "443";
    origin.remove_prefix(8);
  } else {
    return false;  // "null", extensions, files
  }
  auto from = parse_host(origin);
  auto to = parse_host(host);
  if (!from) return false;
  if (from->port.empty()) from->port = usual_port;
  if (is_listed(*from, hosts)) return true;
  if (!to) return false;
  // A proxy may have ended TLS in front of us, so that only the name tells; then the port is the usual one of either.
  if (to->port.empty()) to->port = usual_port;
  return *from == *to;
}

}  // namespace headgate::service

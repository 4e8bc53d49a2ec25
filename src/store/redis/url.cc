#include "store/redis/url.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/utf8.h"

namespace headgate::store::redis {
namespace {

constexpr std::uint16_t kPort = 6379;
constexpr std::uint16_t kSentinelPort = 26379;
constexpr unsigned kMaxDatabase = 65535;
constexpr std::size_t kMaxUrlHostBytes = 253;
constexpr std::size_t kMaxMasterBytes = 255;

Error bad_url(std::string_view must) { return {ErrorCode::kInvalidArgument, fmt::format("redis url: {}", must)}; }
// Only for what stands behind the @, where no password is.
Error bad_url(std::string_view must, std::string_view got) {
  return bad_url(fmt::format("{}, got \"{}\"", must, base::shortened(got, 100)));
}

bool is_number(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<unsigned> number(std::string_view text, unsigned least, unsigned most) noexcept {
  unsigned value = 0;
  if (!is_number(text)) return std::nullopt;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || value < least || value > most) return std::nullopt;
  return value;
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return plain;
}

bool is_name(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

// Takes the scheme off `rest`.
Result<void> read_scheme(std::string_view& rest, Url& url, bool& unix_socket) {
  struct Scheme {
    std::string_view name;
    Url::Kind kind;
    bool tls;
  };
  static constexpr Scheme kSchemes[] = {
      {"redis://", Url::Kind::kStandalone, false},        {"rediss://", Url::Kind::kStandalone, true},
      {"redis+sentinel://", Url::Kind::kSentinel, false}, {"rediss+sentinel://", Url::Kind::kSentinel, true},
      {"redis+cluster://", Url::Kind::kCluster, false},   {"rediss+cluster://", Url::Kind::kCluster, true},
      {"unix://", Url::Kind::kStandalone, false},
  };
  for (const Scheme& scheme : kSchemes) {
    if (!rest.starts_with(scheme.name)) continue;
    rest.remove_prefix(scheme.name.size());
    url.kind = scheme.kind;
    url.tls = scheme.tls;
    unix_socket = scheme.name == "unix://";
    return {};
  }
  return bad_url(
      "it must begin with redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster://, "
      "rediss+cluster:// or unix://");
}

Result<void> read_auth(std::string_view auth, Url& url) {
  const std::size_t colon = auth.find(':');
  // Without a colon it is what other clients take for a user without a password, which Redis does not have.
  if (colon == std::string_view::npos) {
    return bad_url("before the @ there must be user:password, or :password for the default user");
  }
  const std::optional<std::string> user = percent_decoded(auth.substr(0, colon));
  const std::optional<std::string> password = percent_decoded(auth.substr(colon + 1));
  if (!user || !password) {
    return bad_url("in user and password a % must be followed by two hexadecimal digits; % itself is %25");
  }
  if (password->empty()) return bad_url("the password before the @ is empty");
  url.user = *user;
  url.password = *password;
  return {};
}

Result<Endpoint> read_endpoint(std::string_view text, std::uint16_t default_port) {
  Endpoint endpoint;
  endpoint.port = default_port;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return bad_url("an IPv6 address in brackets must end with ]", text);
    endpoint.host = text.substr(1, close - 1);
    in6_addr parsed{};
    if (endpoint.host.size() > INET6_ADDRSTRLEN || ::inet_pton(AF_INET6, endpoint.host.c_str(), &parsed) != 1) {
      return bad_url("what is in brackets must be an IPv6 address", endpoint.host);
    }
    const std::string_view after = text.substr(close + 1);
    if (!after.empty() && after.front() != ':') return bad_url("after ] there must be :port or nothing", text);
    has_port = !after.empty();
    if (has_port) port = after.substr(1);
  } else {
    const std::size_t colon = text.find(':');
    has_port = colon != std::string_view::npos;
    const std::string_view host = text.substr(0, colon);
    if (has_port) port = text.substr(colon + 1);
    if (port.find(':') != std::string_view::npos) return bad_url("an IPv6 address must stand in brackets");
    if (host.empty()) return bad_url("the host is missing");
    if (!is_name(host) || host.size() > kMaxUrlHostBytes) return bad_url("the host must be a name or an address", host);
    endpoint.host = host;
  }
  if (has_port) {
    const std::optional<unsigned> value = number(port, 1, 65535);
    constexpr std::string_view kMust = "the port must be a number from 1 to 65535";
    // Anything else could be a password whose @ was forgotten.
    if (!value) return is_number(port) ? bad_url(kMust, port) : bad_url(kMust);
    endpoint.port = static_cast<std::uint16_t>(*value);
  }
  return endpoint;
}

Result<void> read_endpoints(std::string_view text, Url& url) {
  const std::uint16_t port = url.kind == Url::Kind::kSentinel ? kSentinelPort : kPort;
  while (true) {
    const std::size_t comma = text.find(',');
    Result<Endpoint> endpoint = read_endpoint(text.substr(0, comma), port);
    if (!endpoint) return std::move(endpoint).error();
    url.endpoints.push_back(std::move(*endpoint));
    if (comma == std::string_view::npos) return {};
    if (url.kind == Url::Kind::kStandalone) {
      return bad_url("several hosts need redis+sentinel:// or redis+cluster://");
    }
    if (url.endpoints.size() == kMaxUrlEndpoints) {
      return bad_url(fmt::format("there must be at most {} hosts", kMaxUrlEndpoints));
    }
    text.remove_prefix(comma + 1);
  }
}

Result<void> read_database(std::string_view text, Url& url) {
  const std::optional<unsigned> value = number(text, 0, kMaxDatabase);
  if (!value) return bad_url(fmt::format("the database must be a number from 0 to {}", kMaxDatabase), text);
  url.database = *value;
  return {};
}

// What stands behind the hosts, without its first slash.
Result<void> read_path(std::string_view path, Url& url) {
  switch (url.kind) {
    case Url::Kind::kStandalone: return path.empty() ? Result<void>() : read_database(path, url);
    case Url::Kind::kCluster:
      if (!path.empty())
        return bad_url("a cluster has no database numbers; after the hosts there must be nothing", path);
      return {};
    case Url::Kind::kSentinel: break;
  }
  const std::size_t slash = path.find('/');
  const std::string_view master = path.substr(0, slash);
  if (!is_name(master) || master.size() > kMaxMasterBytes) {
    return bad_url("after the sentinels there must be / and the master's name of letters, digits, '.', '-' and '_'",
                   master);
  }
  url.master = master;
  if (slash == std::string_view::npos || slash + 1 == path.size()) return {};
  return read_database(path.substr(slash + 1), url);
}

Result<void> read_socket(std::string_view path, Url& url) {
  if (!path.starts_with('/')) return bad_url("after unix:// there must be an absolute path");
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return bad_url(fmt::format("a unix socket's path must be at most {} bytes", sizeof(sockaddr_un::sun_path) - 1),
                   path);
  }
  url.endpoints.push_back(Endpoint{{}, 0, std::string(path)});
  return {};
}

}  // namespace

std::string text_of(const Endpoint& endpoint) {
  if (!endpoint.path.empty()) return "unix:" + endpoint.path;
  if (endpoint.host.find(':') != std::string::npos) return fmt::format("[{}]:{}", endpoint.host, endpoint.port);
  return fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kMaxUrlBytes) {
    return bad_url(fmt::format("it must be at most {} bytes, got {}", kMaxUrlBytes, text.size()));
  }
  if (!base::is_plain_text(text)) return bad_url("it must be text without control characters");
  Url url;
  bool unix_socket = false;
  if (Result<void> scheme = read_scheme(text, url, unix_socket); !scheme) return std::move(scheme).error();
  const std::size_t slash = text.find('/');
  const std::string_view authority = text.substr(0, slash);
  std::string_view hosts = authority;
  if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
    if (Result<void> auth = read_auth(authority.substr(0, at), url); !auth) return std::move(auth).error();
    hosts = authority.substr(at + 1);
  }
  const std::string_view path = slash == std::string_view::npos ? std::string_view{} : text.substr(slash);
  if (path.find('@') != std::string_view::npos) return bad_url("in user and password a / must be written as %2F");
  if (unix_socket) {
    if (!hosts.empty()) return bad_url("after unix:// there must be an absolute path");
    if (Result<void> socket = read_socket(path, url); !socket) return std::move(socket).error();
    return url;
  }
  if (Result<void> endpoints = read_endpoints(hosts, url); !endpoints) return std::move(endpoints).error();
  if (Result<void> rest = read_path(path.empty() ? path : path.substr(1), url); !rest) return std::move(rest).error();
  return url;
}

}  // namespace headgate::store::redis

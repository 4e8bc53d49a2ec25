// What access depends on in a request, without the protocol that brought it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace headgate::service {

// The other end of a connection. Text is borrowed.
struct PeerView {
  std::string_view ip;
  std::string_view certificate;  // the common name of a client certificate that was verified; empty: none
  bool loopback = false;
  bool tls = false;
};

// The headers of an HTTP request that access depends on. Text is borrowed.
struct AccessRequest {
  // A header that must not be given twice, since a proxy in front may have relied on the other one.
  struct Header {
    std::string_view value;  // of the first, without surrounding blanks
    int count = 0;
  };
  static constexpr std::size_t kMostCookies = 4;  // Cookie headers; further ones are ignored

  Header authorization;
  Header host;
  Header origin;
  std::array<std::string_view, kMostCookies> cookie_lines;
  std::size_t cookie_count = 0;
  std::optional<PeerView> peer;  // nullopt: not known

  [[nodiscard]] std::span<const std::string_view> cookies() const noexcept {
    return {cookie_lines.data(), cookie_count};
  }
};

}  // namespace headgate::service

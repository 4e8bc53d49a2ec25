#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "base/ascii.h"
#include "base/text.h"
#include "net/websocket.h"

namespace headgate::net {
namespace {

// RFC 6455, section 1.3.
constexpr std::string_view kGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Whether any header of that name lists the word: "keep-alive, Upgrade".
bool lists(const HttpRequest& request, std::string_view name, std::string_view word) noexcept {
  for (const Header& header : request.headers) {
    if (!base::equals_ignoring_case(header.name, name)) continue;
    for (std::string_view rest = header.value; !rest.empty();) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      if (base::equals_ignoring_case(base::trimmed(rest.substr(0, comma)), word)) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

// Sixteen bytes in base64: 22 digits, of which the last carries two bits, and two equals signs.
bool is_key(std::string_view key) noexcept {
  if (key.size() != 24 || !key.ends_with("==")) return false;
  for (const char c : key.substr(0, 22)) {
    if (kBase64.find(c) == std::string_view::npos) return false;
  }
  return kBase64.find(key[21]) % 16 == 0;
}

std::string in_base64(const std::array<unsigned char, SHA_DIGEST_LENGTH>& digest) {
  std::string text;
  for (std::size_t i = 0; i < digest.size(); i += 3) {
    const unsigned third = i + 2 < digest.size() ? digest[i + 2] : 0;
    const unsigned bits = static_cast<unsigned>(digest[i]) << 16 | static_cast<unsigned>(digest[i + 1]) << 8 | third;
    for (unsigned shift : {18U, 12U, 6U, 0U}) text += kBase64[bits >> shift & 63U];
  }
  text.back() = '=';  // 20 bytes leave two of the last three
  return text;
}

}  // namespace

Upgrade websocket_upgrade(const HttpRequest& request) noexcept {
  if (!lists(request, "upgrade", "websocket")) return Upgrade::kNo;
  if (request.method != Method::kGet || !lists(request, "connection", "upgrade")) return Upgrade::kBad;
  if (request.count("sec-websocket-version") != 1 || request.header("sec-websocket-version") != "13") {
    return Upgrade::kBadVersion;
  }
  const bool good_key = request.count("sec-websocket-key") == 1 && is_key(request.header("sec-websocket-key"));
  return good_key ? Upgrade::kYes : Upgrade::kBad;
}

std::string websocket_accept_head(const HttpRequest& request) {
  assert(is_key(request.header("sec-websocket-key")));
  const std::string keyed = std::string(request.header("sec-websocket-key")).append(kGuid);
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest;
  std::array<unsigned char, 60> bytes;  // 24 of the key, 36 of the GUID
  std::memcpy(bytes.data(), keyed.data(), bytes.size());
  SHA1(bytes.data(), bytes.size(), digest.data());
  return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
         in_base64(digest) + "\r\n\r\n";
}

}  // namespace headgate::net

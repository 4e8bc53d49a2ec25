#include "net/grpc_text.h"

#include "base/utf8.h"

namespace headgate::net {

std::optional<Nanos> parse_grpc_timeout(std::string_view text) noexcept {
  constexpr std::size_t kMostDigits = 8;
  if (text.size() < 2 || text.size() > kMostDigits + 1) return std::nullopt;
  std::int64_t number = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  switch (text.back()) {
    case 'H': return std::min(std::chrono::hours{number}, std::chrono::hours{24 * 365});
    case 'M': return std::chrono::minutes{number};
    case 'S': return std::chrono::seconds{number};
    case 'm': return std::chrono::milliseconds{number};
    case 'u': return std::chrono::microseconds{number};
    case 'n': return Nanos{number};
    default: return std::nullopt;
  }
}

bool is_grpc_content_type(std::string_view type) noexcept {
  constexpr std::string_view kType = "application/grpc";
  if (!type.starts_with(kType)) return false;
  type.remove_prefix(kType.size());
  return type.empty() || type.front() == ';' || type == "+proto" || type.starts_with("+proto;");
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  constexpr std::size_t kMost = 1 << 10;
  const std::string cut = base::shortened(text, kMost);
  std::string out;
  out.reserve(cut.size());
  for (const char c : cut) {
    if (c >= ' ' && c <= '~' && c != '%') {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::array<char, kGrpcPrefix> grpc_prefix(std::uint32_t size) noexcept {
  return {0, static_cast<char>(size >> 24), static_cast<char>(size >> 16 & 0xFF), static_cast<char>(size >> 8 & 0xFF),
          static_cast<char>(size & 0xFF)};
}

}  // namespace headgate::net

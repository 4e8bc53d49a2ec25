#include "net/places.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/utf8.h"

namespace headgate::net {
namespace {

constexpr int kBits = 128;
constexpr int kBitsBeforeFour = 96;  // of ::ffff:a.b.c.d
constexpr std::size_t kFour = 12;    // where a.b.c.d begins in it

std::array<std::uint8_t, 16> mapped(const void* four) noexcept {
  std::array<std::uint8_t, 16> bytes{};
  bytes[10] = bytes[11] = 0xFF;
  std::memcpy(bytes.data() + kFour, four, 4);
  return bytes;
}

bool is_four(const std::array<std::uint8_t, 16>& bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](std::uint8_t byte) { return byte == 0; }) &&
         bytes[10] == 0xFF && bytes[11] == 0xFF;
}

void clear_from(std::array<std::uint8_t, 16>& bytes, int bits) noexcept {
  for (int i = bits; i < kBits; ++i) {
    bytes[static_cast<std::size_t>(i / 8)] &= static_cast<std::uint8_t>(~(0x80U >> (i % 8)));
  }
}

bool holds(const Network& network, std::array<std::uint8_t, 16> address) noexcept {
  clear_from(address, network.bits);
  return address == network.prefix;
}

}  // namespace

Result<Network> parse_network(std::string_view text) {
  const auto malformed = [&] {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("must be an address or a network, such as 10.0.0.5, 10.0.0.0/8 or fd00::/8, got \"{}\"",
                             base::shortened(text, 100))};
  };
  const std::size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  Network network;
  in_addr four{};
  int least = 0;
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) {
    network.prefix = mapped(&four);
    least = kBitsBeforeFour;
  } else if (::inet_pton(AF_INET6, host.c_str(), network.prefix.data()) != 1) {
    return malformed();
  }
  network.bits = kBits;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    int bits = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (problem != std::errc{} || end != digits.data() + digits.size() || bits < 0 || bits > kBits - least) {
      return malformed();
    }
    network.bits = least + bits;
  }
  clear_from(network.prefix, network.bits);
  return network;
}

Places::Places(PlaceRules rules) : rules_(std::move(rules)) {
  rules_.most = std::max<std::size_t>(rules_.most, 1);
  rules_.kept = std::min(rules_.kept, rules_.most / 4);
  if (rules_.per_address == 0) rules_.per_address = rules_.most;
  general_ = rules_.most - rules_.kept;
  last_ = rules_.kept / 2;
}

std::size_t Places::Hash::operator()(const CountedAddress& address) const noexcept {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(address.data()), address.size()});
}

Places::Claim Places::claim_of(const sockaddr_storage& from) const noexcept {
  Claim claim;
  if (from.ss_family == AF_INET) {
    claim.address = mapped(&reinterpret_cast<const sockaddr_in*>(&from)->sin_addr);
  } else if (from.ss_family == AF_INET6) {
    std::memcpy(claim.address.data(), &reinterpret_cast<const sockaddr_in6*>(&from)->sin6_addr, claim.address.size());
  } else {
    claim.kept = true;
    return claim;
  }
  claim.kept = std::any_of(rules_.kept_for.begin(), rules_.kept_for.end(),
                           [&](const Network& network) { return holds(network, claim.address); });
  // One host has a whole /64 of IPv6.
  if (!is_four(claim.address)) std::fill(claim.address.begin() + 8, claim.address.end(), std::uint8_t{0});
  return claim;
}

bool Places::enter(const Claim& claim) {
  if (!claim.kept) {
    const std::lock_guard lock(mutex_);
    std::size_t& count = by_address_[claim.address];
    if (count >= rules_.per_address) return false;
    ++count;
  }
  open_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Places::leave(const Claim& claim) noexcept {
  open_.fetch_sub(1, std::memory_order_relaxed);
  if (claim.kept) return;
  const std::lock_guard lock(mutex_);
  const auto found = by_address_.find(claim.address);
  if (found != by_address_.end() && --found->second == 0) by_address_.erase(found);
}

}  // namespace headgate::net

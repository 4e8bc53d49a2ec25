#include "net/websocket_frame.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace headgate::net {
namespace {

constexpr std::size_t kShort = 126;  // a length in two bytes follows
constexpr std::size_t kLong = 127;   // one in eight
constexpr std::size_t kMaskBytes = 4;

}  // namespace

bool may_be_sent(int code) noexcept {
  const bool defined = code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
  return defined || (code >= 3000 && code <= 4999);
}

std::size_t FrameHead::length_bytes() const noexcept {
  const unsigned length = at(1) & 0x7FU;
  return length == kShort ? 2 : length == kLong ? 8 : 0;
}

std::size_t FrameHead::needed() const noexcept {
  return size_ < 2 ? 2 : 2 + length_bytes() + (masked() ? kMaskBytes : 0);
}

bool FrameHead::take(std::string_view& bytes) noexcept {
  for (;;) {
    const std::size_t want = needed();
    const std::size_t count = std::min(want - size_, bytes.size());
    std::memcpy(bytes_.data() + size_, bytes.data(), count);
    size_ = static_cast<std::uint8_t>(size_ + count);
    bytes.remove_prefix(count);
    if (size_ < want) return false;
    if (want == needed()) return true;
  }
}

std::uint64_t FrameHead::length() const noexcept {
  assert(size_ == needed());
  if (length_bytes() == 0) return at(1) & 0x7FU;
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes(); ++i) length = length << 8 | at(2 + i);
  return length;
}

const char* FrameHead::problem() const noexcept {
  assert(size_ == needed());
  const unsigned opcode = at(0) & 0x0FU;
  if ((at(0) & 0x70U) != 0) return "reserved bits must be 0";
  if ((opcode > 2 && opcode < 8) || opcode > 10) return "there is no such opcode";
  if (!masked()) return "a client's frames must be masked";
  if (length() >> 63 != 0) return "a length must be below 2^63";
  if ((length_bytes() == 2 && length() < kShort) || (length_bytes() == 8 && length() <= 0xFFFF)) {
    return "a length must be in its shortest form";
  }
  if (is_control(static_cast<Opcode>(opcode)) && (!fin() || length() >= kShort)) {
    return "a control frame must be whole and of at most 125 bytes";
  }
  return nullptr;
}

void FrameHead::unmask(std::string_view masked, std::size_t offset, std::string& out) const {
  assert(size_ == needed());
  std::array<unsigned char, sizeof(std::uint64_t)> pattern;
  const unsigned char* mask = bytes_.data() + 2 + length_bytes();
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = mask[(offset + i) % kMaskBytes];
  const auto pattern_word = std::bit_cast<std::uint64_t>(pattern);

  const std::size_t before = out.size();
  out.append(masked);
  char* text = out.data() + before;
  std::size_t i = 0;
  for (; i + sizeof pattern_word <= masked.size(); i += sizeof pattern_word) {
    std::uint64_t word = 0;
    std::memcpy(&word, text + i, sizeof word);
    word ^= pattern_word;
    std::memcpy(text + i, &word, sizeof word);
  }
  for (; i < masked.size(); ++i) text[i] = static_cast<char>(static_cast<unsigned char>(text[i]) ^ pattern[i % 8]);
}

void append_frame(Opcode opcode, std::string_view payload, std::string& out) {
  assert(!is_control(opcode) || payload.size() < kShort);
  out += static_cast<char>(0x80U | static_cast<unsigned>(opcode));
  const std::size_t size = payload.size();
  const std::size_t length_bytes = size < kShort ? 0 : size < 65536 ? 2 : 8;
  out += static_cast<char>(length_bytes == 0 ? size : length_bytes == 2 ? kShort : kLong);
  for (std::size_t i = length_bytes; i-- > 0;) out += static_cast<char>(size >> (8 * i) & 0xFFU);
  out += payload;
}

}  // namespace headgate::net

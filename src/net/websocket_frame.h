// The frames of RFC 6455: their heads read byte by byte, their payload unmasked, and our own written.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headgate::net {

enum class Opcode : std::uint8_t { kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };
constexpr bool is_control(Opcode opcode) noexcept { return (static_cast<unsigned>(opcode) & 8U) != 0; }

// https://www.rfc-editor.org/rfc/rfc6455#section-7.4: only those we send.
struct CloseCode {
  static constexpr int kNormal = 1000;
  static constexpr int kGoingAway = 1001;
  static constexpr int kProtocolError = 1002;
  static constexpr int kUnacceptable = 1003;
  static constexpr int kNotUtf8 = 1007;
  static constexpr int kPolicy = 1008;
  static constexpr int kTooBig = 1009;
  static constexpr int kTryLater = 1013;
};
// Whether a peer may send it.
[[nodiscard]] bool may_be_sent(int close_code) noexcept;

// The head of a frame from a client, however few bytes of it come at a time.
class FrameHead {
 public:
  static constexpr std::size_t kMost = 14;
  // Takes what it needs from the front of `bytes`. True: it is complete.
  bool take(std::string_view& bytes) noexcept;
  [[nodiscard]] bool begun() const noexcept { return size_ > 0; }
  void clear() noexcept { size_ = 0; }

  // REQUIRES: complete, all below.
  [[nodiscard]] bool fin() const noexcept {
    assert(size_ == needed());
    return (at(0) & 0x80U) != 0;
  }
  [[nodiscard]] Opcode opcode() const noexcept {
    assert(size_ == needed());
    return static_cast<Opcode>(at(0) & 0x0FU);
  }
  [[nodiscard]] std::uint64_t length() const noexcept;
  // What no client may send, or nullptr: reserved bits or opcodes, no mask, a length not in the shortest form.
  [[nodiscard]] const char* problem() const noexcept;
  // Appends `masked`, which stands `offset` bytes into the payload, in the clear.
  void unmask(std::string_view masked, std::size_t offset, std::string& out) const;

 private:
  [[nodiscard]] unsigned at(std::size_t i) const noexcept { return bytes_[i]; }
  [[nodiscard]] bool masked() const noexcept { return (at(1) & 0x80U) != 0; }
  [[nodiscard]] std::size_t length_bytes() const noexcept;
  [[nodiscard]] std::size_t needed() const noexcept;

  std::array<unsigned char, kMost> bytes_{};
  std::uint8_t size_ = 0;
};

// Appends one unmasked frame. REQUIRES: a control frame's payload has at most 125 bytes.
void append_frame(Opcode opcode, std::string_view payload, std::string& out);
[[nodiscard]] constexpr std::size_t frame_size(std::size_t payload) noexcept {
  return payload + (payload < 126 ? 2 : payload < 65536 ? 4 : 10);
}

}  // namespace headgate::net

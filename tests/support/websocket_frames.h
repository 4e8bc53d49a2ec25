// Frames as a client sends them, and as it reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headgate::test {

struct ClientFrame {
  int opcode = 1;
  bool fin = true;
  bool masked = true;
  unsigned reserved = 0;  // bits of the first byte
  int length_bytes = -1;  // 0, 2 or 8; -1: the shortest
};

inline std::string frame(std::string_view payload, const ClientFrame& how = {}) {
  constexpr std::string_view kMask = "\x37\xfa\x21\x3d";
  const int length_bytes = how.length_bytes >= 0    ? how.length_bytes
                           : payload.size() < 126   ? 0
                           : payload.size() < 65536 ? 2
                                                    : 8;
  std::string out;
  out += static_cast<char>((how.fin ? 0x80 : 0) | static_cast<int>(how.reserved) | how.opcode);
  const std::size_t head = length_bytes == 0 ? payload.size() : length_bytes == 2 ? 126 : 127;
  out += static_cast<char>((how.masked ? 0x80U : 0U) | head);
  for (int i = length_bytes; i-- > 0;) out += static_cast<char>(payload.size() >> (8 * i) & 0xFF);
  if (!how.masked) return out.append(payload);
  out += kMask;
  for (std::size_t i = 0; i < payload.size(); ++i) out += static_cast<char>(payload[i] ^ kMask[i % 4]);
  return out;
}

inline std::string close_payload(int code, std::string_view reason = {}) {
  return std::string{static_cast<char>(code >> 8), static_cast<char>(code & 0xFF)}.append(reason);
}

struct ServerFrame {
  int opcode = 0;
  std::string payload;
  [[nodiscard]] int close_code() const {
    return payload.size() < 2 ? 0
                              : static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1]);
  }
};

// All whole frames. Servers send neither fragments nor masks here; a frame that has either comes out with opcode -1.
inline std::vector<ServerFrame> frames_of(std::string_view bytes) {
  std::vector<ServerFrame> frames;
  while (bytes.size() >= 2) {
    const auto at = [&](std::size_t i) -> std::size_t { return static_cast<unsigned char>(bytes[i]); };
    ServerFrame each;
    each.opcode = (at(0) & 0xF0U) == 0x80 && at(1) < 128 ? static_cast<int>(at(0) & 0x0FU) : -1;
    const std::size_t length_bytes = at(1) == 126 ? 2 : at(1) == 127 ? 8 : 0;
    std::size_t size = at(1);
    if (length_bytes > 0) size = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) size = size << 8 | at(2 + i);
    if (bytes.size() < 2 + length_bytes + size) break;
    each.payload = bytes.substr(2 + length_bytes, size);
    bytes.remove_prefix(2 + length_bytes + size);
    frames.push_back(std::move(each));
  }
  return frames;
}

}  // namespace headgate::test

// A Pen puts text together on the stack and hands it to a string in one piece: appending to a string a word at a time
// costs more than the words.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace headgate::base {

// Everything has been handed over when it is gone, or by flush().
class Pen {
 public:
  explicit Pen(std::string& out) noexcept : out_(out) {}
  ~Pen() { flush(); }
  Pen(const Pen&) = delete;
  Pen& operator=(const Pen&) = delete;

  // A literal, whose length the compiler knows.
  template <std::size_t kSize>
  void put(const char (&literal)[kSize]) {
    static_assert(kSize <= kRoom);
    make_room(kSize);
    std::memcpy(end_, literal, kSize - 1);
    end_ += kSize - 1;
  }
  void put(char c) {
    make_room(1);
    *end_++ = c;
  }
  void text(std::string_view text) {
    if (text.empty()) return;  // it may point nowhere
    if (text.size() > kRoom) {
      flush();
      out_ += text;
      return;
    }
    make_room(text.size());
    std::memcpy(end_, text.data(), text.size());
    end_ += text.size();
  }
  void number(std::int64_t number) {
    make_room(kLongestNumber);
    end_ = std::to_chars(end_, end_ + kLongestNumber, number).ptr;
  }
  // Not a whole one; the shortest text that gives it back.
  void fraction(double number) {
    make_room(kLongestNumber);
    end_ = std::to_chars(end_, end_ + kLongestNumber, number).ptr;
  }
  // What was written so far is in the string, which may be written to until the next call.
  std::string& flush() {
    out_.append(room_.data(), static_cast<std::size_t>(end_ - room_.data()));
    end_ = room_.data();
    return out_;
  }

 private:
  static constexpr std::size_t kRoom = 1024;
  static constexpr std::size_t kLongestNumber = 32;

  void make_room(std::size_t size) {
    if (static_cast<std::size_t>(room_.data() + kRoom - end_) < size) [[unlikely]]
      flush();
  }

  std::string& out_;
  std::array<char, kRoom> room_;
  char* end_ = room_.data();
};

}  // namespace headgate::base

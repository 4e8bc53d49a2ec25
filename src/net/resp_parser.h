// Finds one command at the beginning of some bytes: an array of bulk strings, or a line of words.
//
// Refuses, in Redis' words, what Redis refuses; stricter only in that every line and every bulk string must end in CR
// LF. Goes on where it stopped when more has come, and copies nothing but quoted words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "net/resp.h"

namespace headgate::net {

class RespParser {
 public:
  enum class Step : std::uint8_t { kMore, kWhole, kRefused };

  // Before each command.
  void begin() noexcept;
  // Looks at `bytes`, which begin with the command's first byte and are, each time, those of last time and perhaps
  // more, at any address.
  [[nodiscard]] Step parse(std::string_view bytes, const RespLimits& limits);

  // After kWhole: the arguments, borrowed from the bytes; empty: there was nothing to do. And how many bytes it was.
  [[nodiscard]] const std::vector<std::string_view>& args() const noexcept { return args_; }
  [[nodiscard]] std::size_t size() const noexcept { return at_; }
  [[nodiscard]] bool is_inline() const noexcept { return inline_; }
  // After kRefused: what is wrong, for people.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

 private:
  enum class Line : std::uint8_t { kMore, kNumber, kNotANumber, kTooLong, kBadEnd };

  [[nodiscard]] Step parse_array(std::string_view bytes, const RespLimits& limits);
  [[nodiscard]] Step parse_inline(std::string_view bytes, const RespLimits& limits);
  [[nodiscard]] Line read_number(std::string_view bytes, const RespLimits& limits, std::int64_t& number);
  [[nodiscard]] Step refuse(std::string_view problem);
  bool split(std::string_view line);

  std::vector<std::string_view> args_;
  std::string words_;    // of an inline command, unquoted
  std::string problem_;  //
  const char* base_ = nullptr;
  std::size_t at_ = 0;       // everything before is read
  std::size_t scanned_ = 0;  // of an unfinished line, without an end
  std::int64_t left_ = -1;   // arguments to come; -1: the array's length is to come
  std::int64_t bulk_ = -1;   // length of the argument to come; -1: not known yet
  bool inline_ = false;
};

}  // namespace headgate::net

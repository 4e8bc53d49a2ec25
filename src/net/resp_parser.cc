#include "net/resp_parser.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace headgate::net {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }

int hex_value(char c) noexcept {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// As Redis reads them: no plus, no blanks, no leading zeros.
bool parse_number(std::string_view text, std::int64_t& number) noexcept {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 19 || (text.front() == '0' && (negative || text.size() > 1))) return false;
  std::uint64_t value = 0;  // 19 digits fit
  for (const char c : text) {
    if (!is_digit(c)) return false;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
  number = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
  return true;
}

}  // namespace

void RespParser::begin() noexcept {
  args_.clear();
  at_ = scanned_ = 0;
  left_ = bulk_ = -1;
  base_ = nullptr;
  inline_ = false;
}

RespParser::Step RespParser::refuse(std::string_view problem) {
  problem_ = problem;
  return Step::kRefused;
}

RespParser::Step RespParser::parse(std::string_view bytes, const RespLimits& limits) {
  if (bytes.empty()) return Step::kMore;
  if (bytes.front() != '*') return parse_inline(bytes, limits);
  if (bytes.data() != base_) {
    const std::ptrdiff_t by = base_ == nullptr ? 0 : bytes.data() - base_;
    for (std::string_view& arg : args_) arg = {arg.data() + by, arg.size()};
    base_ = bytes.data();
  }
  return parse_array(bytes, limits);
}

// The number between the mark at `at_` and the end of its line.
RespParser::Line RespParser::read_number(std::string_view bytes, const RespLimits& limits, std::int64_t& number) {
  const char* const first = bytes.data() + at_ + 1;
  const char* const end = bytes.data() + bytes.size();
  // Nearly always one or two digits.
  if (end - first >= 4 && is_digit(first[0])) {
    if (first[1] == '\r' && first[2] == '\n') {
      number = first[0] - '0';
      at_ += 4;
      scanned_ = 0;
      return Line::kNumber;
    }
    if (first[0] != '0' && is_digit(first[1]) && first[2] == '\r' && first[3] == '\n') {
      number = (first[0] - '0') * 10 + (first[1] - '0');
      at_ += 5;
      scanned_ = 0;
      return Line::kNumber;
    }
  }
  const std::string_view rest = bytes.substr(at_ + 1);
  const std::size_t cr = rest.find('\r', scanned_);
  if (cr == std::string_view::npos || cr + 1 == rest.size()) {
    scanned_ = cr == std::string_view::npos ? rest.size() : cr;
    return scanned_ > limits.max_line ? Line::kTooLong : Line::kMore;
  }
  scanned_ = 0;
  if (cr > limits.max_line) return Line::kTooLong;
  if (rest[cr + 1] != '\n') return Line::kBadEnd;
  if (!parse_number(rest.substr(0, cr), number)) return Line::kNotANumber;
  at_ += cr + 3;
  return Line::kNumber;
}

RespParser::Step RespParser::parse_array(std::string_view bytes, const RespLimits& limits) {
  if (left_ < 0) {
    std::int64_t count = 0;
    switch (read_number(bytes, limits, count)) {
      case Line::kMore: return Step::kMore;
      case Line::kTooLong: return refuse("too big mbulk count string");
      case Line::kBadEnd:
      case Line::kNotANumber: return refuse("invalid multibulk length");
      case Line::kNumber: break;
    }
    if (count > static_cast<std::int64_t>(limits.max_args)) return refuse("invalid multibulk length");
    left_ = std::max<std::int64_t>(count, 0);  // an array of none, or none at all, is nothing to do
  }
  while (left_ > 0) {
    if (bulk_ < 0) {
      if (at_ >= bytes.size()) return Step::kMore;
      if (bytes[at_] != '$') {
        problem_ = "expected '$', got '";
        problem_ += bytes[at_];
        problem_ += "'";
        return Step::kRefused;
      }
      std::int64_t length = 0;
      switch (read_number(bytes, limits, length)) {
        case Line::kMore: return Step::kMore;
        case Line::kTooLong: return refuse("too big bulk count string");
        case Line::kBadEnd:
        case Line::kNotANumber: return refuse("invalid bulk length");
        case Line::kNumber: break;
      }
      if (length < 0 || length > static_cast<std::int64_t>(limits.max_bulk)) return refuse("invalid bulk length");
      bulk_ = length;
    }
    const auto length = static_cast<std::size_t>(bulk_);
    if (at_ + length + 2 > limits.max_command) return refuse("too big command");
    if (bytes.size() - at_ < length + 2) return Step::kMore;
    const char* const text = bytes.data() + at_;
    if (text[length] != '\r' || text[length + 1] != '\n') return refuse("expected CR LF after a bulk string");
    args_.emplace_back(text, length);
    at_ += length + 2;
    bulk_ = -1;
    --left_;
  }
  return Step::kWhole;
}

RespParser::Step RespParser::parse_inline(std::string_view bytes, const RespLimits& limits) {
  inline_ = true;
  const std::size_t end = bytes.find('\n', scanned_);
  if (end == std::string_view::npos) {
    scanned_ = bytes.size();
    return bytes.size() > limits.max_line ? refuse("too big inline request") : Step::kMore;
  }
  if (end > limits.max_line) return refuse("too big inline request");
  at_ = end + 1;
  std::string_view line = bytes.substr(0, end);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (!split(line)) return refuse("unbalanced quotes in request");
  if (args_.size() > limits.max_args) return refuse("too many arguments in request");
  return Step::kWhole;
}

// Words between blanks; "…" with the usual escapes and \x41; '…' with \' alone. A closing quote ends its word.
bool RespParser::split(std::string_view line) {
  words_.clear();
  words_.reserve(line.size());  // words never grow, so views into it stay good
  std::size_t i = 0;
  while (true) {
    while (i < line.size() && is_blank(line[i])) ++i;
    if (i == line.size()) return true;
    const std::size_t begin = words_.size();
    bool done = false;
    while (!done && i < line.size() && !is_blank(line[i])) {
      const char quote = line[i];
      if (quote != '"' && quote != '\'') {
        words_ += line[i++];
        continue;
      }
      for (++i;; ++i) {
        if (i == line.size()) return false;
        char c = line[i];
        if (c == quote) break;
        if (c == '\\' && i + 1 < line.size()) {
          if (quote == '\'') {
            if (line[i + 1] == '\'') c = line[++i];
          } else if (line[i + 1] == 'x' && i + 3 < line.size() && hex_value(line[i + 2]) >= 0 &&
                     hex_value(line[i + 3]) >= 0) {
            c = static_cast<char>(hex_value(line[i + 2]) * 16 + hex_value(line[i + 3]));
            i += 3;
          } else {
            c = line[++i];
            switch (c) {
              case 'n': c = '\n'; break;
              case 'r': c = '\r'; break;
              case 't': c = '\t'; break;
              case 'b': c = '\b'; break;
              case 'a': c = '\a'; break;
              default: break;
            }
          }
        }
        words_ += c;
      }
      ++i;
      if (i < line.size() && !is_blank(line[i])) return false;  // a closing quote must end its word
      done = true;
    }
    args_.emplace_back(words_.data() + begin, words_.size() - begin);
  }
}

}  // namespace headgate::net

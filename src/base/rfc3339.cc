#include "base/rfc3339.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "base/ascii.h"

namespace headgate::base {
namespace {

// Takes text from the front; once something did not fit, nothing does any more.
class Taker {
 public:
  explicit Taker(std::string_view text) noexcept : rest_(text) {}

  int number(std::size_t digits, int least, int most) noexcept {
    int value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (i >= rest_.size() || !is_digit(rest_[i])) return fail();
      value = value * 10 + (rest_[i] - '0');
    }
    rest_.remove_prefix(digits);
    return value < least || value > most ? fail() : value;
  }
  char one_of(std::string_view any) noexcept {
    if (rest_.empty() || any.find(rest_[0]) == std::string_view::npos) return static_cast<char>(fail());
    const char taken = rest_[0];
    rest_.remove_prefix(1);
    return taken;
  }
  bool next_is(char c) noexcept {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  Nanos fraction() noexcept {
    std::int64_t nanos = 0;
    std::int64_t digit_worth = 100'000'000;
    std::size_t digits = 0;
    for (; digits < rest_.size() && is_digit(rest_[digits]); ++digits) {
      nanos += (rest_[digits] - '0') * digit_worth;
      digit_worth /= 10;
    }
    if (digits == 0) fail();
    rest_.remove_prefix(digits);
    return Nanos{nanos};
  }
  [[nodiscard]] bool done() const noexcept { return !failed_ && rest_.empty(); }

 private:
  int fail() noexcept {
    failed_ = true;
    rest_ = {};
    return 0;
  }
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace

std::optional<Nanos> parse_rfc3339(std::string_view text) noexcept {
  namespace c = std::chrono;
  constexpr std::size_t kLongest = 64;
  if (text.size() > kLongest) return std::nullopt;
  Taker take(text);
  const int year = take.number(4, 0, 9999);
  take.one_of("-");
  const int month = take.number(2, 1, 12);
  take.one_of("-");
  const int day = take.number(2, 1, 31);
  take.one_of("Tt ");
  const int hour = take.number(2, 0, 23);
  take.one_of(":");
  const int minute = take.number(2, 0, 59);
  take.one_of(":");
  const int second = take.number(2, 0, 60);
  const Nanos fraction = take.next_is('.') ? take.fraction() : Nanos{0};
  c::minutes offset{0};
  const char zone = take.one_of("Zz+-");
  if (zone == '+' || zone == '-') {
    const int hours = take.number(2, 0, 23);
    take.one_of(":");
    offset = c::hours{hours} + c::minutes{take.number(2, 0, 59)};
    if (zone == '-') offset = -offset;
  }
  const c::year_month_day date{c::year{year}, c::month{static_cast<unsigned>(month)},
                               c::day{static_cast<unsigned>(day)}};
  if (!take.done() || !date.ok()) return std::nullopt;
  const c::seconds whole =
      c::sys_days{date}.time_since_epoch() + c::hours{hour} + c::minutes{minute} + c::seconds{second} - offset;
  if (whole < c::seconds{0} || whole > c::duration_cast<c::seconds>(kMaxTime)) return std::nullopt;
  const Nanos instant = Nanos{whole} + fraction;
  return instant > kMaxTime ? std::nullopt : std::optional(instant);
}

std::optional<Nanos> parse_instant(std::string_view text) noexcept {
  constexpr std::int64_t kNanosPerMilli = 1'000'000;
  std::int64_t millis = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, millis);
  if (read.ec != std::errc{} || read.ptr != end) return parse_rfc3339(text);
  if (millis < 0 || millis > kMaxTime.count() / kNanosPerMilli) return std::nullopt;
  return Nanos{millis * kNanosPerMilli};
}

std::string format_rfc3339(Nanos instant) {
  namespace c = std::chrono;
  const auto days = c::floor<c::days>(instant);
  const c::year_month_day date{c::sys_days{days}};
  const c::hh_mm_ss time{c::floor<c::milliseconds>(instant - days)};
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
                static_cast<int>(time.seconds().count()));
  std::string out = text.data();
  if (const auto millis = time.subseconds().count(); millis != 0) {
    std::snprintf(text.data(), text.size(), ".%03d", static_cast<int>(millis));
    out += text.data();
  }
  return out + "Z";
}

}  // namespace headgate::base

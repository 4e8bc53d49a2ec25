#include "policy/number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

namespace headgate::policy {
namespace {

using base::Wide;

constexpr int kMostDigits = 18;
constexpr int kMostExponent = 30;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Unit {
  std::string_view name;
  std::int64_t nanos;
};
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::array<Unit, 25> kUnits{{
    {"ns", 1},
    {"us", 1'000},
    {"ms", 1'000'000},
    {"s", kSecond},
    {"sec", kSecond},
    {"second", kSecond},
    {"seconds", kSecond},
    {"m", 60 * kSecond},
    {"min", 60 * kSecond},
    {"minute", 60 * kSecond},
    {"minutes", 60 * kSecond},
    {"h", 3'600 * kSecond},
    {"hr", 3'600 * kSecond},
    {"hour", 3'600 * kSecond},
    {"hours", 3'600 * kSecond},
    {"d", 86'400 * kSecond},
    {"day", 86'400 * kSecond},
    {"days", 86'400 * kSecond},
    {"w", 604'800 * kSecond},
    {"wk", 604'800 * kSecond},
    {"week", 604'800 * kSecond},
    {"weeks", 604'800 * kSecond},
    {"y", 365LL * 86'400 * kSecond},
    {"year", 365LL * 86'400 * kSecond},
    {"years", 365LL * 86'400 * kSecond},
}};

std::int64_t unit_nanos(std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit.nanos;
  }
  return 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::int64_t saturated(Wide value) {
  if (value > kMost) return kMost;
  if (value < -kMost) return -kMost;
  return static_cast<std::int64_t>(value);
}

Wide power_of_ten(int exponent) {
  Wide power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// Reads the digits around the point; false if there are none, or more than count. Zeros at the end go into the
// exponent.
bool read_digits(std::string_view& text, Decimal& decimal) {
  bool any = false;
  bool point = false;
  int pending = 0;  // digits since the last one that was no zero
  int significant = 0;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(c)) break;
    any = true;
    if (point) --decimal.exponent;
    ++pending;
    if (c == '0') continue;
    significant = decimal.digits == 0 ? 1 : significant + pending;
    if (significant > kMostDigits) return false;
    for (int i = 0; i < pending && decimal.digits != 0; ++i) decimal.digits *= 10;
    decimal.digits += c - '0';
    pending = 0;
  }
  decimal.exponent += pending;
  return any;
}

}  // namespace

double Decimal::value() const noexcept {
  // Dividing by an exact power gives the nearest number, as multiplying by 0.1 would not.
  const double power = std::pow(10.0, std::abs(exponent));
  return exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
}

std::optional<std::int64_t> Decimal::times(std::int64_t scale) const noexcept {
  Wide product = Wide{digits} * scale;
  for (int i = 0; i < exponent; ++i) {
    if (product > kMost || product < -kMost) break;
    product *= 10;
  }
  for (int i = exponent; i < 0; ++i) {
    if (product % 10 != 0) return std::nullopt;
    product /= 10;
  }
  return saturated(product);
}

std::optional<Decimal> parse_decimal(std::string_view text) noexcept {
  text = trimmed(text);
  Decimal decimal;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (!read_digits(text, decimal)) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+')) text.remove_prefix(1);
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (error != std::errc{} || std::abs(exponent) > kMostExponent) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    decimal.exponent += exponent;
  }
  if (!text.empty()) return std::nullopt;
  if (decimal.digits == 0) return Decimal{};
  if (std::abs(decimal.exponent) > 2 * kMostExponent) return std::nullopt;
  if (negative) decimal.digits = -decimal.digits;
  return decimal;
}

std::optional<Nanos> parse_duration(std::string_view text) noexcept {
  text = trimmed(text);
  std::size_t letters = text.size();
  while (letters > 0 && text[letters - 1] >= 'a' && text[letters - 1] <= 'z') --letters;
  const std::string_view name = text.substr(letters);
  const std::int64_t unit = name.empty() ? kSecond : unit_nanos(name);
  const auto number = parse_decimal(text.substr(0, letters));
  if (unit == 0 || !number) return std::nullopt;
  const auto nanos = number->times(unit);
  if (!nanos) return std::nullopt;
  return Nanos{*nanos};
}

std::optional<Nanos> parse_per(std::string_view text) noexcept {
  text = trimmed(text);
  if (const std::int64_t unit = unit_nanos(text); unit != 0) return Nanos{unit};
  return parse_duration(text);
}

std::optional<Rate> parse_rate(std::string_view text, std::int64_t scale) noexcept {
  const std::size_t slash = text.find('/');
  const auto number = parse_decimal(text.substr(0, slash));
  const auto per = slash == std::string_view::npos ? Nanos{kSecond} : parse_per(text.substr(slash + 1));
  if (!number || !per) return std::nullopt;
  constexpr Rate kNone{0, Nanos{kSecond}};
  constexpr int kMostShift = 18;
  if (per->count() <= 0 || std::abs(number->exponent) > kMostShift) return kNone;
  Wide units = Wide{number->digits} * scale;
  int exponent = number->exponent;
  for (; exponent < 0 && units % 10 == 0; ++exponent) units /= 10;
  // Decimals that the scale has not taken up lengthen the time instead: 0.5/s is 1/2s.
  Wide span = per->count() * power_of_ten(std::max(-exponent, 0));
  if (units > kMost || units < -kMost || span > kMost) return kNone;
  units *= power_of_ten(std::max(exponent, 0));
  if (units > kMost || units < -kMost) return kNone;
  // In lowest terms by the decimals alone: 2.5/s is 5/2s, and 10/min stays what it is.
  const auto decimals = static_cast<std::int64_t>(power_of_ten(std::max(-exponent, 0)));
  const std::int64_t common = std::gcd(static_cast<std::int64_t>(units), decimals);
  return Rate{static_cast<Units>(units / common), Nanos{static_cast<std::int64_t>(span / common)}};
}

std::optional<double> parse_fraction(std::string_view text) noexcept {
  text = trimmed(text);
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  auto number = parse_decimal(text);
  if (!number) return std::nullopt;
  if (percent) number->exponent -= 2;
  return number->value();
}

}  // namespace headgate::policy

#include "policy/check_fields.h"

#include <charconv>
#include <cmath>

namespace headgate::policy {

ValueText::ValueText(const Value& value) noexcept {
  switch (value.kind) {
    case Value::Kind::kText: view_ = value.text; return;
    case Value::Kind::kBoolean: view_ = value.boolean ? "true" : "false"; return;
    case Value::Kind::kNumber: break;
  }
  const double number = value.number == 0 ? 0 : value.number;  // no "-0"
  // Without an exponent where people, and JSON, write none: the shortest text of 100000 is 1e+05, but "100000" must be
  // the same value.
  const double size = std::abs(number);
  const bool plain = number == 0 || (size >= 1e-6 && size < 1e21);
  char* const last = buffer_.data() + buffer_.size();
  const auto end = plain ? std::to_chars(buffer_.data(), last, number, std::chars_format::fixed).ptr
                         : std::to_chars(buffer_.data(), last, number).ptr;
  view_ = {buffer_.data(), static_cast<std::size_t>(end - buffer_.data())};
}

base::Hash128 Fields::hash(const Value* value) const noexcept {
  if (value == nullptr) return hasher_({});
  return hasher_(ValueText(*value).view());
}

std::optional<double> number_of(const Value& value) noexcept {
  if (value.kind == Value::Kind::kNumber) return value.number;
  if (value.kind == Value::Kind::kBoolean) return std::nullopt;
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto read = std::from_chars(value.text.data(), end, number);
  if (read.ec != std::errc{} || read.ptr != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace headgate::policy

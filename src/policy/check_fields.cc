#include "policy/check_fields.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/same_text.h"

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

namespace {

// What a value is, so that no two different ones are the same bytes.
class ValueBytes {
 public:
  explicit ValueBytes(const Value& value) noexcept : kind_(static_cast<char>('0' + static_cast<int>(value.kind))) {
    if (value.kind == Value::Kind::kText) {
      view_ = value.text;
      return;
    }
    const std::uint64_t number = value.kind == Value::Kind::kNumber ? std::bit_cast<std::uint64_t>(value.number)
                                                                    : static_cast<std::uint64_t>(value.boolean);
    std::memcpy(buffer_.data(), &number, sizeof(number));
    view_ = {buffer_.data(), sizeof(number)};
  }
  ValueBytes(const ValueBytes&) = delete;
  ValueBytes& operator=(const ValueBytes&) = delete;
  [[nodiscard]] std::string_view kind() const noexcept { return {&kind_, 1}; }
  [[nodiscard]] std::string_view view() const noexcept { return view_; }

 private:
  char kind_;
  std::array<char, sizeof(std::uint64_t)> buffer_{};
  std::string_view view_;
};

}  // namespace

base::Hash128 Fields::hash(const Value* value) const noexcept {
  if (value == nullptr) return hasher_({});
  return hasher_(ValueText(*value).view());
}

std::uint64_t Fields::identity(std::uint64_t number, const LooksAt& of) const noexcept {
  base::HashChain chain(hasher_);
  chain.add(0, number, 0);
  const auto add = [&](std::size_t i) {
    if ((of.dimensions >> i & 1) != 0) chain.add(1 + i, text(static_cast<Dimension>(i)));
  };
  // Not in a loop: there is much to be known of each beforehand.
  const auto add_all = [&]<std::size_t... kIndexes>(std::index_sequence<kIndexes...>) { (add(kIndexes), ...); };
  add_all(std::make_index_sequence<kCount>());
  if (of.attributes == 0) return chain.all();
  std::uint64_t what = kCount + 1;
  for (const auto& [name, value] : check_.attributes) {
    if ((of.attributes & base::hint_of(name)) == 0) continue;
    chain.add(what, name);
    const auto kind = static_cast<std::uint64_t>(value.kind);
    if (value.kind == Value::Kind::kText) {
      chain.add(what + 1, value.text);
    } else {
      chain.add(what + 1, std::bit_cast<std::uint64_t>(value.number), value.boolean ? kind : ~kind);
    }
    what += 2;
  }
  return chain.all();
}

std::size_t Fields::write(const LooksAt& of, char* out, std::size_t most) const noexcept {
  constexpr std::size_t kLongest = 255;
  std::size_t at = 1;  // so that there is something even where nothing is looked at
  bool fits = most > 0;
  const auto put = [&](std::string_view text) {
    fits = fits && text.size() <= kLongest && text.size() < most - at;
    if (!fits) return;
    out[at++] = static_cast<char>(text.size());
    at += text.copy(out + at, text.size());
  };
  if (fits) out[0] = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    if ((of.dimensions >> i & 1) != 0) put(text(static_cast<Dimension>(i)));
  }
  if (of.attributes == 0) return fits ? at : 0;
  for (const auto& [name, value] : check_.attributes) {
    if ((of.attributes & base::hint_of(name)) == 0) continue;
    put(name);
    const ValueBytes bytes(value);
    put(bytes.kind());
    put(bytes.view());
  }
  return fits ? at : 0;
}

bool Fields::reads_as(const LooksAt& of, std::string_view written) const noexcept {
  const char* at = written.data() + 1;
  const char* const end = written.data() + written.size();
  bool same = true;
  // The lengths are those of the check, so that nothing waits for what was written.
  const auto next = [&](std::string_view text) {
    same = same && text.size() < static_cast<std::size_t>(end - at) && static_cast<unsigned char>(*at) == text.size() &&
           base::same_text(text, {at + 1, text.size()});
    if (same) at += 1 + text.size();
  };
  const auto next_field = [&](std::size_t i) {
    if ((of.dimensions >> i & 1) != 0) next(text(static_cast<Dimension>(i)));
  };
  const auto next_fields = [&]<std::size_t... kIndexes>(std::index_sequence<kIndexes...>) {
    (next_field(kIndexes), ...);
  };
  next_fields(std::make_index_sequence<kCount>());
  if (of.attributes != 0) {
    for (const auto& [name, value] : check_.attributes) {
      if ((of.attributes & base::hint_of(name)) == 0) continue;
      next(name);
      const ValueBytes bytes(value);
      next(bytes.kind());
      next(bytes.view());
    }
  }
  return same && at == end;
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

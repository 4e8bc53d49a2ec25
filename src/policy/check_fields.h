// The fields of one check, hashed at most once each: what matching and keys are made of.
#pragma once

#include <array>
#include <cstring>
#include <optional>

#include "base/hash.h"
#include "policy/model.h"

namespace headgate::policy {

[[nodiscard]] constexpr std::uint32_t bit_of(Dimension dimension) noexcept {
  return std::uint32_t{1} << static_cast<unsigned>(dimension);
}

// What is looked at in a check: a bit for each dimension and, where attributes are among them, for the name of each
// (see base::hint_of).
struct LooksAt {
  std::uint32_t dimensions = 0;
  std::uint64_t attributes = 0;
};

// Borrows the check. Not for sharing between threads.
class Fields {
 public:
  // `hasher` must outlive it.
  Fields(const Check& check, const base::Hasher& hasher) noexcept : check_(check), hasher_(hasher) {}

  [[nodiscard]] const Check& check() const noexcept { return check_; }
  [[nodiscard]] std::string_view text(Dimension dimension) const noexcept {
    return dimension == Dimension::kTier ? tier_ : check_.*kMembers[index(dimension)];
  }
  [[nodiscard]] bool has(Dimension dimension) const noexcept { return !text(dimension).empty(); }
  [[nodiscard]] base::Hash128 hash(Dimension dimension) noexcept {
    const std::size_t i = index(dimension);
    if ((hashed_ >> i & 1U) == 0) {
      hashes_[i] = hasher_(text(dimension));
      hashed_ |= 1U << i;
    }
    return hashes_[i];
  }
  // One hash of all of this, under that number. Checks that differ may have the same one.
  [[nodiscard]] std::uint64_t identity(std::uint64_t number, const LooksAt& of) const noexcept;
  // All of this as bytes, which are the same for two checks only if all of it is. Nothing is written beyond `most`
  // bytes: 0 means that there were more, or a text of more than 255.
  [[nodiscard]] std::size_t write(const LooksAt& of, char* out, std::size_t most) const noexcept;
  // Whether write() has given these bytes of the same things looked at.
  [[nodiscard]] bool reads_as(const LooksAt& of, std::string_view written) const noexcept;
  void set_tier(Tier tier) noexcept { tier_ = to_string(tier); }
  void copy_tier(const Fields& other) noexcept { tier_ = other.tier_; }

  // nullptr: the check does not have it. Of attributes of one name the first counts.
  [[nodiscard]] const Value* attribute(std::string_view name) const noexcept {
    for (const Attribute& attribute : check_.attributes) {
      if (attribute.name == name) return &attribute.value;
    }
    return nullptr;
  }
  // Of a value, by how it reads; of nullptr, as of nothing.
  [[nodiscard]] base::Hash128 hash(const Value* value) const noexcept;

  static constexpr std::size_t kCount = 11;  // all dimensions but attributes

 private:
  [[nodiscard]] static std::size_t index(Dimension dimension) noexcept { return static_cast<std::size_t>(dimension); }

  static constexpr std::array<std::string_view Check::*, kCount> kMembers{
      &Check::agent, &Check::session, &Check::user,    &Check::tenant,   &Check::plan, &Check::operation,
      nullptr,       &Check::channel, &Check::context, &Check::resource, &Check::ip};

  const Check& check_;
  const base::Hasher& hasher_;
  std::string_view tier_;
  std::uint32_t hashed_ = 0;
  union {  // so that nothing is cleared which is not used
    // Valid where hashed_ says so.
    std::array<base::Hash128, kCount> hashes_;  // NOLINT(readability-identifier-naming)
  };
};

// How a value reads: the shortest text that gives the number back, "true" or "false".
class ValueText {
 public:
  explicit ValueText(const Value& value) noexcept;
  ValueText(const ValueText&) = delete;
  ValueText& operator=(const ValueText&) = delete;
  [[nodiscard]] std::string_view view() const noexcept { return view_; }

 private:
  std::array<char, 32> buffer_;
  std::string_view view_;
};

// A number, or text that reads as one.
[[nodiscard]] std::optional<double> number_of(const Value& value) noexcept;

}  // namespace headgate::policy

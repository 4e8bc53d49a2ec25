// Policies compiled for matching: immutable, built on load, swapped whole.
//
// An index leads from a check to the few policies that might match it, so that the cost of a check grows with the
// policies that match, not with those that exist. Each policy is filed under the one of its conditions that the fewest
// others share: an exact agent and operation, any other exact value, or the beginning of a pattern.
#pragma once

#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "policy/check_fields.h"
#include "policy/model.h"
#include "policy/pattern.h"

namespace headgate::policy {

// What policies may match on besides the check itself.
struct Surroundings {
  control::LoadLevel load = control::LoadLevel::kNormal;
  bool emergency = false;
};

// Indexes of the policies that match a check, in the order in which they are judged.
class Matched {
 public:
  static constexpr std::size_t kMost = 64;
  [[nodiscard]] std::span<const std::uint32_t> policies() const noexcept { return {policies_.data(), size_}; }
  [[nodiscard]] bool overflow() const noexcept { return overflow_; }  // more than kMost match
  // Keeps the order; once each.
  void add(std::uint32_t policy) noexcept {
    if (size_ < kMost && (size_ == 0 || policies_[size_ - 1] < policy)) {
      policies_[size_++] = policy;
    } else {
      insert(policy);
    }
  }

 private:
  void insert(std::uint32_t policy) noexcept;

  std::array<std::uint32_t, kMost> policies_;
  std::uint32_t size_ = 0;
  bool overflow_ = false;
};

// Safe for concurrent use.
class Rules {
 public:
  // `seed` is that of the hashes that Fields will bring.
  Rules(Document document, std::uint64_t seed);

  [[nodiscard]] const Document& document() const noexcept { return document_; }
  // In the order in which they are judged: by priority, then as declared. Built-in tier limits come last.
  [[nodiscard]] const std::vector<Policy>& policies() const noexcept { return document_.policies; }

  // What Fields are to be hashed by.
  [[nodiscard]] const base::Hasher& hasher() const noexcept { return hasher_; }

  // Fields whose tier is not set, such as those of a check of quotas, lack it as they may lack any other field.
  void match(Fields& fields, const Surroundings& surroundings, Matched& matched) const noexcept;
  // For people: why that policy does not match; empty: it does.
  [[nodiscard]] std::string why_not(std::size_t policy, const Fields& fields, const Surroundings& surroundings) const;

  // What any policy matches on or counts by.
  [[nodiscard]] const LooksAt& looks_at() const noexcept { return looks_at_; }
  [[nodiscard]] bool tiers_matter() const noexcept { return (looks_at_.dimensions & bit_of(Dimension::kTier)) != 0; }
  struct Classified {
    Tier tier = Tier::kNormal;
    bool known = false;  // false: on no list, so normal
  };
  [[nodiscard]] Classified classify(std::string_view operation) const noexcept;

 private:
  struct FieldRule {
    Dimension dimension;
    PatternSet patterns;
  };
  struct AttributeCondition {
    const AttributeRule* rule;
    PatternSet patterns;
  };
  struct Conditions {
    bool only_fields = true;  // nothing below matters but the fields
    bool missing_matches = false;
    bool unidentified = false;
    std::int8_t emergency = -1;    // -1: does not matter
    std::uint8_t load_levels = 0;  // bits; 0: does not matter
    std::vector<FieldRule> fields;
    std::vector<AttributeCondition> attributes;
  };
  // A key of the index.
  struct Feature {
    enum class Kind : std::uint8_t { kEverything, kWhole, kPrefix, kPair, kAttribute };
    Kind kind = Kind::kEverything;
    Dimension dimension = Dimension::kAgent;  // of kWhole and kPrefix
    std::uint32_t length = 0;                 // of kPrefix
    std::uint64_t hash = 0;
    std::uint64_t hint = 0;  // of kPrefix and kAttribute
  };
  using IndexEntry = std::vector<Feature>;  // a check that the policy matches has one of these
  struct Slot {
    std::uint64_t feature = 0;  // 0: free
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  [[nodiscard]] bool holds(const FieldRule& rule, bool missing_matches, const Fields& fields) const noexcept;
  [[nodiscard]] static bool holds(const AttributeCondition& condition, bool missing_matches,
                                  const Fields& fields) noexcept;
  [[nodiscard]] bool matches(std::uint32_t policy, const Fields& fields,
                             const Surroundings& surroundings) const noexcept;
  void compile_conditions();
  void build_index();
  [[nodiscard]] std::vector<IndexEntry> index_entries_of(std::size_t policy) const;
  void file(std::uint32_t policy, const IndexEntry& entry);
  struct Lookup;  // one search of the index, and where its result goes
  void consider(std::uint64_t feature, const Lookup& asked) const noexcept;
  void consider_all(std::uint32_t begin, std::uint32_t end, const Lookup& asked) const noexcept;

  [[nodiscard]] std::uint64_t hashed(std::string_view text) const noexcept { return hasher_(text).low; }

  Document document_;
  base::Hasher hasher_;
  std::vector<Conditions> conditions_;
  std::array<PatternSet, kTierCount> tier_operations_;
  LooksAt looks_at_;

  // The index: feature -> policies. Features are 64-bit hashes; what they lead to is verified in full.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> filed_;  // while it is built
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> postings_;
  std::uint32_t everything_begin_ = 0;  // among the postings: what any check might match
  std::uint32_t everything_end_ = 0;
  std::uint32_t indexed_dimensions_ = 0;   // bits
  std::uint32_t prefixed_dimensions_ = 0;  // bits
  bool pairs_indexed_ = false;
  // So that attributes that no policy reads are not hashed: a bit for each name of an attribute, and for each first
  // letter.
  std::uint64_t attribute_hints_ = 0;
  struct Prefixes {
    std::uint64_t first_letters = 0;
    std::vector<std::uint32_t> lengths;
  };
  std::array<Prefixes, Fields::kCount> prefixes_;
};

}  // namespace headgate::policy

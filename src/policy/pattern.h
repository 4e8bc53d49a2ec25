// Patterns of a match list, compiled: exact values, path prefixes, globs, and exceptions that begin with '!'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/same_text.h"

namespace headgate::policy {

// `*` stands for any run of characters, `?` for one; nothing else is special. Takes at most |pattern| * |text| steps.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

class PatternSet {
 public:
  PatternSet() = default;
  explicit PatternSet(const std::vector<std::string>& patterns);

  // No patterns at all: the field does not matter.
  [[nodiscard]] bool empty() const noexcept { return !any_ && yes_.empty() && no_.empty(); }
  [[nodiscard]] bool matches(std::string_view text) const noexcept {
    // One value or one beginning, as most are, without a call.
    switch (kind_) {
      case Kind::kOneValue: return base::same_text(text, only_);
      case Kind::kOnePrefix: return text.size() >= only_.size() && base::same_text(text.substr(0, only_.size()), only_);
      case Kind::kAny: break;
    }
    return matches_any(text);
  }
  // Whether everything that is there matches: "*" and no exceptions.
  [[nodiscard]] bool matches_all() const noexcept { return any_ && no_.empty(); }
  [[nodiscard]] bool has_star() const noexcept { return any_; }

  // What a text must equal, or begin with, to match at all; for an index.
  struct Lead {
    std::string_view text;
    bool whole = false;
  };
  // Empty: anything might match.
  [[nodiscard]] std::vector<Lead> leads() const;

 private:
  struct Glob {
    std::string prefix;
    std::string rest;  // "*": anything may follow the prefix
    [[nodiscard]] bool matches(std::string_view text) const noexcept;
  };
  struct List {
    std::vector<std::string> exact;  // sorted
    std::vector<Glob> globs;
    void add(std::string_view pattern);
    [[nodiscard]] bool empty() const noexcept { return exact.empty() && globs.empty(); }
    [[nodiscard]] bool matches(std::string_view text) const noexcept;
  };

  [[nodiscard]] bool matches_any(std::string_view text) const noexcept;

  enum class Kind : std::uint8_t { kAny, kOneValue, kOnePrefix };
  Kind kind_ = Kind::kAny;
  bool any_ = false;
  std::string only_;  // the value, or the beginning
  List yes_;
  List no_;
};

}  // namespace headgate::policy

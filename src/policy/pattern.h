// Patterns of a match list, compiled: exact values, path prefixes, globs, and exceptions that begin with '!'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headgate::policy {

// `*` stands for any run of characters, `?` for one; nothing else is special. Takes at most |pattern| * |text| steps.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

class PatternSet {
 public:
  PatternSet() = default;
  explicit PatternSet(const std::vector<std::string>& patterns);

  // No patterns at all: the field does not matter.
  [[nodiscard]] bool empty() const noexcept { return !any_ && yes_.empty() && no_.empty(); }
  [[nodiscard]] bool matches(std::string_view text) const noexcept;
  // Whether everything that is there matches: "*" and no exceptions.
  [[nodiscard]] bool matches_all() const noexcept { return any_ && no_.empty(); }
  [[nodiscard]] bool has_star() const noexcept { return any_; }
  // The one text that matches, where that is all there is to it; else nullptr.
  [[nodiscard]] const std::string* only() const noexcept { return single_ ? yes_.exact.data() : nullptr; }

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

  bool any_ = false;
  bool single_ = false;
  List yes_;
  List no_;
};

}  // namespace headgate::policy

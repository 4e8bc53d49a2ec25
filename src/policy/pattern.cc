#include "policy/pattern.h"

#include <algorithm>
#include <cstring>

namespace headgate::policy {

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last '*' seen, and how much of the text it has taken so far
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::size_t unanchored_length(std::string_view pattern) noexcept {
  if (pattern.starts_with('!')) pattern.remove_prefix(1);
  if (pattern.empty() || pattern == "*") return 0;
  return pattern.front() == '*' || pattern.front() == '?' ? pattern.size() : 0;
}

PatternSet::PatternSet(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (pattern == "*") {
      any_ = true;
    } else if (pattern.starts_with('!')) {
      no_.add(std::string_view(pattern).substr(1));
    } else {
      yes_.add(pattern);
    }
  }
  if (yes_.empty() && !no_.empty()) any_ = true;
  if (any_ || !no_.empty()) return;
  if (yes_.globs.empty() && yes_.exact.size() == 1) {
    kind_ = Kind::kOneValue;
    only_ = yes_.exact.front();
  } else if (yes_.exact.empty() && yes_.globs.size() == 1 && yes_.globs.front().rest == "*") {
    kind_ = Kind::kOnePrefix;
    only_ = yes_.globs.front().prefix;
  }
}

void PatternSet::List::add(std::string_view pattern) {
  const std::size_t wild = pattern.find_first_of("*?");
  if (wild != std::string_view::npos) {
    Glob& glob = globs.emplace_back();
    glob.prefix = pattern.substr(0, wild);
    glob.rest = pattern.substr(wild);
    for (std::size_t at = wild; at < pattern.size();) {
      const std::size_t end = std::min(pattern.find_first_of("*?", at), pattern.size());
      if (end - at > glob.literal.size()) glob.literal = pattern.substr(at, end - at);
      at = end + 1;
    }
  } else if (pattern.ends_with('/')) {
    globs.push_back({std::string(pattern), "*", {}});
  } else {
    exact.insert(std::lower_bound(exact.begin(), exact.end(), pattern), std::string(pattern));
  }
}

bool PatternSet::Glob::matches(std::string_view text) const noexcept {
  if (!text.starts_with(prefix)) return false;
  if (rest == "*") return true;
  text.remove_prefix(prefix.size());
  return ::memmem(text.data(), text.size(), literal.data(), literal.size()) != nullptr && glob_matches(rest, text);
}

bool PatternSet::List::matches(std::string_view text) const noexcept {
  constexpr std::size_t kFewEnoughToLookThrough = 8;
  if (exact.size() <= kFewEnoughToLookThrough) {
    for (const std::string& value : exact) {
      if (value == text) return true;
    }
  } else if (std::binary_search(exact.begin(), exact.end(), text)) {
    return true;
  }
  return std::any_of(globs.begin(), globs.end(), [&](const Glob& glob) { return glob.matches(text); });
}

bool PatternSet::matches_any(std::string_view text) const noexcept {
  return (any_ || yes_.matches(text)) && (no_.empty() || !no_.matches(text));
}

std::vector<PatternSet::Lead> PatternSet::leads() const {
  std::vector<Lead> leads;
  if (any_) return leads;
  for (const std::string& value : yes_.exact) leads.push_back({value, true});
  for (const Glob& glob : yes_.globs) {
    if (glob.prefix.empty()) return {};
    leads.push_back({glob.prefix, false});
  }
  return leads;
}

}  // namespace headgate::policy

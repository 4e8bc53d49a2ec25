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
    } else if (star != std::string_view::npos && p == star + 1 && p < pattern.size() && pattern[p] != '?') {
      // Behind a '*', to where the next character is: most texts are done with here.
      const void* next = std::memchr(text.data() + t, pattern[p], text.size() - t);
      if (next == nullptr) return false;
      t = taken = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
      ++p;
      ++t;
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
    globs.push_back({std::string(pattern.substr(0, wild)), std::string(pattern.substr(wild))});
  } else if (pattern.ends_with('/')) {
    globs.push_back({std::string(pattern), "*"});
  } else {
    exact.insert(std::lower_bound(exact.begin(), exact.end(), pattern), std::string(pattern));
  }
}

bool PatternSet::Glob::matches(std::string_view text) const noexcept {
  if (!text.starts_with(prefix)) return false;
  return rest == "*" || glob_matches(rest, text.substr(prefix.size()));
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

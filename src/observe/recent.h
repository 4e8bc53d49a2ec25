// A table of what was heard of lately, by name.
//
// Not safe for concurrent use: its owner locks. Holds at most `most` entries; a new one beyond that takes the place of
// the one looked for least lately.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace headgate::observe {

template <class Value>
class Recent {
 public:
  explicit Recent(std::size_t most) : most_(most) {}

  // nullptr: there is none.
  [[nodiscard]] Value* find(std::string_view name) {
    const auto found = index_.find(name);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }
  // A new one where there is none.
  [[nodiscard]] Value& at(std::string_view name) {
    if (Value* known = find(name)) return *known;
    if (entries_.size() == most_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(std::string(name), Value{});
    index_.emplace(entries_.front().first, entries_.begin());
    return entries_.front().second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<const std::string, Value>>;  // the latest first
  std::size_t most_;
  Entries entries_;
  std::unordered_map<std::string_view, typename Entries::iterator> index_;  // by the names in `entries_`
};

}  // namespace headgate::observe

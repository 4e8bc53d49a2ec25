// Counts how many places of a bounded kind each owner holds, so that no owner can take all of them: a tenth each, but
// not fewer than a stated number.
//
// Not safe for concurrent use. One entry per owner that holds at least one place.
#pragma once

#include <algorithm>
#include <cassert>
#include <string>
#include <string_view>
#include <unordered_map>

namespace headgate::base {

class Shares {
 public:
  [[nodiscard]] static constexpr std::size_t share_of(std::size_t most, std::size_t least) noexcept {
    return std::max(most / 10, std::min(most, least));
  }

  [[nodiscard]] std::size_t of(std::string_view owner) const {
    const auto found = owned_.find(std::string(owner));
    return found == owned_.end() ? 0 : found->second;
  }
  void take(std::string_view owner) { ++owned_[std::string(owner)]; }
  // REQUIRES: it has taken one.
  void give_back(std::string_view owner) {
    const auto found = owned_.find(std::string(owner));
    assert(found != owned_.end());
    if (--found->second == 0) owned_.erase(found);
  }

 private:
  std::unordered_map<std::string, std::size_t> owned_;
};

}  // namespace headgate::base

// Counts violations until there are enough of them for an escalation event.
#pragma once

#include <deque>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/hash.h"
#include "engine/state.h"
#include "policy/model.h"

namespace headgate::engine {

// Safe for concurrent use. Remembers at most kMost subjects; beyond that, the one heard of least lately is forgotten.
class Escalations {
 public:
  static constexpr std::size_t kMost = 100'000;

  // True: this violation is the one that makes it `threshold` within the time window. Counting then starts anew.
  // `who` is the policy and the subject.
  [[nodiscard]] bool violated(const base::Hash128& who, const policy::Escalation& escalation, Nanos now) {
    if (escalation.threshold <= 1 || escalation.time_window == Nanos{0}) return true;
    const std::lock_guard guard(mutex_);
    auto found = index_.find(who);
    if (found == index_.end()) {
      if (subjects_.size() == kMost) {
        index_.erase(subjects_.back().who);
        subjects_.pop_back();
      }
      subjects_.push_front({who, {}});
      found = index_.emplace(who, subjects_.begin()).first;
    } else {
      subjects_.splice(subjects_.begin(), subjects_, found->second);
    }
    std::deque<Nanos>& instants = found->second->instants;
    while (!instants.empty() && now - instants.front() >= escalation.time_window) instants.pop_front();
    instants.push_back(now);
    if (instants.size() < escalation.threshold) return false;
    instants.clear();
    return true;
  }

 private:
  struct Subject {
    base::Hash128 who;
    std::deque<Nanos> instants;  // fewer than the threshold
  };
  std::mutex mutex_;
  std::list<Subject> subjects_;
  std::unordered_map<base::Hash128, std::list<Subject>::iterator, HashOfHash> index_;
};

}  // namespace headgate::engine

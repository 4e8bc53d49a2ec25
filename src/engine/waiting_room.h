// Checks that wait for room: lines by the cell that holds them up, each in order of priority, then arrival.
//
// Only the first of a line is tried; whoever comes later and would take from the same cell goes behind it, unless its
// priority is higher. Safe for concurrent use; what is tried and told happens without the lock.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "engine/owned_check.h"
#include "engine/state.h"

namespace headgate::engine {

class CheckDecision;

class WaitingRoom {
 public:
  using Done = std::function<void(const CheckDecision&)>;
  struct Waiting {
    std::uint64_t id = 0;
    base::Hash128 line;
    OwnedCheck check;
    Done done;
    Nanos since{0};
    Nanos deadline{0};
    Nanos retry_at{0};
    int priority = 0;
  };

  // One relaxed load, for the path that almost never finds anyone.
  [[nodiscard]] bool empty() const noexcept { return size_.load(std::memory_order_relaxed) == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(); }
  // Whether somebody of at least this priority waits for that cell.
  [[nodiscard]] bool has_line(const base::Hash128& key, int priority) const;

  // How often kick() was called. Read it before judging; whoever joins a line after a kick that came meanwhile is
  // tried again at once, so that no room goes unnoticed.
  [[nodiscard]] std::uint64_t kicks() const noexcept { return kicks_.load(); }
  // In order of arrival, for those who may have to wait.
  [[nodiscard]] std::uint64_t new_id() noexcept { return ++last_id_; }
  // False: full. REQUIRES: waiting->id is a new one.
  [[nodiscard]] bool add(std::shared_ptr<Waiting> waiting, std::size_t most, std::uint64_t kicks);
  // Whoever is taken must be told, or put back. One that is being tried just now is not found, but will not be put
  // back.
  [[nodiscard]] std::shared_ptr<Waiting> take(std::uint64_t id);
  // Somebody whose wait is over by `now`; nullptr: nobody.
  [[nodiscard]] std::shared_ptr<Waiting> take_overdue(Nanos now);
  // The first of a line that is to be tried by now; nullptr: nobody. One is tried at a time.
  [[nodiscard]] std::shared_ptr<Waiting> take_first_due(Nanos now);
  // False: somebody wanted to take it while it was tried, and it is not put back.
  [[nodiscard]] bool put_back(std::shared_ptr<Waiting> waiting, std::uint64_t kicks);
  [[nodiscard]] std::shared_ptr<Waiting> take_any();
  // Room may have come: every line is tried again.
  void kick();
  // When something is to be done next; kMaxTime: never.
  [[nodiscard]] Nanos next_due() const;

 private:
  struct Rank {
    int priority;
    std::uint64_t id;
    bool operator<(const Rank& other) const noexcept {
      return priority != other.priority ? priority > other.priority : id < other.id;
    }
  };
  using Line = std::map<Rank, std::shared_ptr<Waiting>>;

  std::shared_ptr<Waiting> remove(std::unordered_map<base::Hash128, Line, HashOfHash>::iterator line,
                                  Line::iterator at);

  mutable std::mutex mutex_;
  std::unordered_map<base::Hash128, Line, HashOfHash> lines_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> last_id_{0};
  std::uint64_t trying_ = 0;  // its id
  bool unwanted_ = false;     // and whether somebody has asked to take it
  std::atomic<std::uint64_t> kicks_{0};
};

}  // namespace headgate::engine

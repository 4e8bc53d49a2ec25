// Checks that wait for room: lines by the cell that holds them up, each in order of priority, then by turns of the
// owners, then arrival: the second wait of one owner comes after the first of another.
//
// One owner has at most a tenth of the places (100 at the least), so that it cannot keep all others out.
//
// The first of a line is tried; a check that comes later and would charge the same cell goes behind it, unless its
// priority is higher. Safe for concurrent use; what is tried and told happens without the lock. Each call takes time
// that grows with the logarithm of how many wait, but for kick(), which looks at every line.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/shares.h"
#include "engine/done.h"
#include "engine/owned_check.h"
#include "engine/state.h"

namespace headgate::engine {

class CheckDecision;

class WaitingRoom {
 public:
  using Done = engine::Done;
  struct Waiting {
    std::uint64_t id = 0;
    std::string owner;   // whose share of the places it has
    base::Hash128 line;  // the cell that held it up when it was last tried
    OwnedCheck check;
    Done done;
    Nanos since{0};
    Nanos deadline{0};
    Nanos retry_at{0};
    int priority = 0;
    std::uint64_t round = 0;     // in which its owner has this turn in the line; 0: none yet
    std::uint64_t ready_as = 0;  // its number among those that are to be tried; 0: it is not
  };

  // A place that is taken. Unless a check is added on it, its destructor gives it back.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : room_(std::exchange(other.room_, nullptr)), owner_(std::move(other.owner_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(room_, other.room_);
      std::swap(owner_, other.owner_);
      return *this;
    }
    ~Place() {
      if (room_ != nullptr) room_->give_back(owner_);
    }
    [[nodiscard]] explicit operator bool() const noexcept { return room_ != nullptr; }

   private:
    friend class WaitingRoom;
    Place(WaitingRoom& room, std::string_view owner) : room_(&room), owner_(owner) {}
    WaitingRoom* room_ = nullptr;
    std::string owner_;
  };

  // One relaxed load, for the path that almost never finds a check waiting.
  [[nodiscard]] bool empty() const noexcept { return size_.load(std::memory_order_relaxed) == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(); }
  // Whether a check of at least this priority waits for that cell.
  [[nodiscard]] bool has_line(const base::Hash128& key, int priority) const;

  // How often kick() was called. Read it before judging: a check that joins a line whose cell was kicked later is tried
  // again at once, so that no room goes unnoticed.
  [[nodiscard]] std::uint64_t kicks() const noexcept { return kicks_.load(); }
  // In order of arrival, for those who may have to wait.
  [[nodiscard]] std::uint64_t new_id() noexcept { return ++last_id_; }
  static constexpr std::size_t kLeastShare = 100;
  // No place: as many as `most` wait, or the owner's share of them.
  [[nodiscard]] Place take_place(std::size_t most, std::string_view owner = {});
  // The place's owner becomes the waiting check's. REQUIRES: `place` is one, waiting->id is a new one.
  void add(Place place, std::shared_ptr<Waiting> waiting, std::uint64_t kicks);
  // What is taken must be answered, or put back. One that is being tried just now is not found, but will not be put
  // back.
  [[nodiscard]] std::shared_ptr<Waiting> take(std::uint64_t id);
  // One whose wait is over by `now`; nullptr: none.
  [[nodiscard]] std::shared_ptr<Waiting> take_overdue(Nanos now);
  // The first of a line that is to be tried by now; nullptr: none. It is being tried until put_back() or answered().
  [[nodiscard]] std::shared_ptr<Waiting> take_first_due(Nanos now);
  // False: take() was called for it while it was tried, and it is not put back.
  [[nodiscard]] bool put_back(std::shared_ptr<Waiting> waiting, std::uint64_t kicks);
  void answered(const Waiting& tried);
  [[nodiscard]] std::shared_ptr<Waiting> take_any();
  // All whose callers may stop being valid (see Done). They stay in line, and may be answered meanwhile.
  [[nodiscard]] std::vector<std::shared_ptr<const Waiting>> revocable() const;
  // Room may have come: every line is tried again.
  void kick();
  // Room may have come in this cell: its line is tried again.
  void kick(const base::Hash128& cell);
  // When something is to be done next; kMaxTime: never.
  [[nodiscard]] Nanos next_due() const;

 private:
  struct Rank {
    int priority;
    std::uint64_t round;
    std::uint64_t id;
    bool operator<(const Rank& other) const noexcept {
      if (priority != other.priority) return priority > other.priority;
      return round != other.round ? round < other.round : id < other.id;
    }
  };
  [[nodiscard]] static Rank rank_of(const Waiting& waiting) noexcept {
    return {waiting.priority, waiting.round, waiting.id};
  }
  struct Line {
    std::map<Rank, std::shared_ptr<Waiting>> waiting;
    std::uint64_t round = 0;                                // that was last tried
    std::unordered_map<std::string, std::uint64_t> rounds;  // the last one in which each owner has a turn
    [[nodiscard]] bool empty() const noexcept { return waiting.empty(); }
    [[nodiscard]] Waiting& first() const noexcept { return *waiting.begin()->second; }
    [[nodiscard]] std::uint64_t next_round(const std::string& owner);
  };
  using Lines = std::unordered_map<base::Hash128, Line, HashOfHash>;
  using Due = std::pair<Nanos, std::uint64_t>;  // an instant, and whose
  // Another first of a line than the indexes say is one too many: they are told before it changes and after.
  void list_first(const Line& line);
  void unlist_first(const Line& line);
  void set_ready(Waiting& first);
  void insert(std::shared_ptr<Waiting> waiting);
  // Whether room may have come in that cell since kicks() was this.
  [[nodiscard]] bool kicked_since(const base::Hash128& cell, std::uint64_t kicks) const noexcept;
  void give_back(std::string_view owner);  // a place
  // The line's next one is to be tried then. nullptr: none has that id.
  std::shared_ptr<Waiting> remove(std::uint64_t id);

  mutable std::mutex mutex_;
  base::Shares shares_;  // of the places
  Lines lines_;
  std::unordered_map<std::uint64_t, Waiting*> by_id_;
  std::set<Due> deadlines_;
  // Of the first of each line only:
  std::set<std::pair<std::uint64_t, std::uint64_t>> ready_;  // to be tried: by ready_as, so that lines take turns; id
  std::uint64_t last_ready_ = 0;
  std::set<Due> later_;               // by retry_at
  std::atomic<std::size_t> size_{0};  // and places taken
  std::atomic<std::uint64_t> last_id_{0};
  std::unordered_map<std::uint64_t, bool> trying_;  // by id: whether take() was called for it
  std::atomic<std::uint64_t> kicks_{0};
  std::uint64_t kicked_all_ = 0;             // what the last kick of all lines has made of kicks_
  std::array<std::uint64_t, 256> kicked_{};  // the same of cells, by their hash
};

}  // namespace headgate::engine

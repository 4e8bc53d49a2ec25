// The engine's Cells: a store in this process, and where there is one, the remote store in whose place it stands while
// that is unreachable.
//
// Safe for concurrent use. What the memory store admits in place of the remote one is charged to that later (arrears).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/arrears.h"
#include "engine/charge_list.h"
#include "engine/check_decision.h"
#include "store/memory/memory_store.h"
#include "store/remote_store.h"

namespace headgate::engine {

// Which store has judged a charge list. kStandIn: the memory store, while the remote one is unreachable.
enum class AnsweredBy : std::uint8_t { kMemory, kRemote, kStandIn, kNone };
struct Answered {
  store::Applied applied{};
  Nanos at{0};  // kRemote: by its clock
  AnsweredBy by = AnsweredBy::kMemory;

  [[nodiscard]] bool admitted() const noexcept {
    return (applied.wait == Nanos{0} || applied.reserved) && !applied.store_full;
  }
};

class Cells {
 public:
  // After a late answer: the store is reachable, and its next answer is likely to be in time.
  static constexpr Nanos kLateRetry = std::chrono::milliseconds{100};

  // `remote`, if not nullptr, must outlive this.
  Cells(const Clock& clock, const store::MemoryStoreOptions& options, store::RemoteStore* remote)
      : clock_(clock), store_(options), remote_(remote) {}

  [[nodiscard]] store::MemoryStore& memory() noexcept { return store_; }
  [[nodiscard]] const store::MemoryStore& memory() const noexcept { return store_; }
  [[nodiscard]] store::RemoteStore* remote() const noexcept { return remote_; }  // nullptr: there is none
  [[nodiscard]] bool has_remote() const noexcept { return remote_ != nullptr; }
  [[nodiscard]] const base::Hasher& hasher() const noexcept { return store_.hasher(); }

  // Judges and charges the list of a check as far as that needs no round trip; nullopt: the remote store must be asked.
  [[nodiscard]] std::optional<Answered> try_now(const ChargeList& list, CheckDecision& decision);
  // Asks the remote store, and waits for its answer: not for longer than its deadline. Never on a thread that serves
  // connections. REQUIRES: has_remote().
  [[nodiscard]] Answered ask_and_wait(ChargeList& list, CheckDecision& decision);
  // From the remote store's answer. Without one, as the policies' on_store_failure says: while the store is
  // unreachable, the list becomes what this node may admit alone. An answer that is merely late denies the check,
  // unless all its policies are open: admitting it here would admit more than the limit while other nodes reach the
  // store.
  [[nodiscard]] Answered take(const Result<store::RemoteStore::Answer>& answer, ChargeList& list,
                              CheckDecision& decision);

  // Charges that belong to no policy; waits for a remote store. nullopt: it did not answer.
  [[nodiscard]] std::optional<store::Applied> apply(std::span<const store::Charge> charges, const store::Ask& ask,
                                                    std::span<core::Outcome> outcomes);
  // The same, or in this process if the store does not answer.
  store::Applied apply_or_stand_in(std::span<const store::Charge> charges, const store::Ask& ask,
                                   std::span<core::Outcome> outcomes);
  // After a remote store has not answered: by a cell of this process, or, where the store is merely late, a denial for
  // kLateRetry.
  store::Applied stand_in(const Error& why, const store::Charge& charge, const store::Ask& ask, core::Outcome& outcome);
  void refund(const store::Charge& charge, Nanos charged_at, Nanos now);

  // Charges the remote store what was used already, without waiting for its answer: where it does not answer, the
  // charge becomes an arrear. REQUIRES: the arrear's numbers are what the charge is judged by.
  enum class Rest : std::uint8_t { kLost, kAhead };  // of what does not fit
  void charge_owed(const store::Charge& charge, const Arrear& arrear, const store::Ask& ask, Rest rest) {
    charge_owed(charge, arrear, ask, rest, nullptr);
  }
  // Charges the remote store its arrears, as far as they still count: a portion after the other, so that checks find
  // places in the store's queue. Call it every second or so while the store is reachable.
  void make_up();
  [[nodiscard]] const Arrears& arrears() const noexcept { return arrears_; }
  // Checks that cells of this process have judged because the remote store was unreachable, and checks that were denied
  // because it was reachable but did not answer in time. Since the start.
  [[nodiscard]] std::uint64_t stand_ins() const noexcept { return stand_ins_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t late_answers() const noexcept { return late_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::size_t count() const noexcept { return store_.cells(); }
  [[nodiscard]] LimiterTotals totals() const noexcept { return store_.totals(); }

 private:
  // Some arrears that are being charged. The last answer begins the next portion, unless one has failed.
  struct Portion {
    explicit Portion(Cells& of) : cells(of) {}
    ~Portion();
    Portion(const Portion&) = delete;
    Portion& operator=(const Portion&) = delete;

    Cells& cells;
    std::atomic<bool> failed{false};
  };
  static constexpr std::size_t kPortion = 256;

  [[nodiscard]] Answered stand_in(ChargeList& list, CheckDecision& decision);
  void charge_owed(const store::Charge& charge, Arrear arrear, const store::Ask& ask, Rest rest,
                   const std::shared_ptr<Portion>& portion);

  const Clock& clock_;
  store::MemoryStore store_;
  store::RemoteStore* remote_;
  Arrears arrears_;
  std::atomic<bool> making_up_{false};
  std::atomic<std::uint64_t> stand_ins_{0};
  std::atomic<std::uint64_t> late_{0};
};

// The memory store answers at once.
inline std::optional<Answered> Cells::try_now(const ChargeList& list, CheckDecision& decision) {
  const std::span<core::Outcome> outcomes{decision.outcomes.data(), decision.outcomes.size()};
  if (remote_ == nullptr) [[likely]]
    return Answered{store_.apply(list.all(), list.ask, outcomes)};
  if (list.holds) return std::nullopt;
  const std::optional<store::Applied> applied = remote_->try_now(list.all(), list.ask, outcomes);
  if (!applied) return std::nullopt;
  return Answered{.applied = *applied, .by = AnsweredBy::kRemote};
}

}  // namespace headgate::engine

// Limits that no policy names but the caller itself: CL.THROTTLE of RESP, descriptors of gRPC.
//
// Safe for concurrent use. With the memory store a call never waits and allocates only where it first sees a key.
#pragma once

#include <absl/functional/function_ref.h>

#include <functional>
#include <optional>
#include <string_view>

#include "engine/aftermath.h"
#include "engine/cells.h"
#include "headgate/decision.h"
#include "headgate/limit.h"

namespace headgate::engine {

// Each owner has keys of its own; those without a name share theirs.
struct ThrottleKey {
  std::string_view key;
  std::string_view owner{};  // keeps its keys apart from others'; empty: the keys that all share
  std::string_view maker{};  // whose share of cells it takes; empty: its owner's
  [[nodiscard]] std::string_view share() const noexcept { return maker.empty() ? owner : maker; }
};

// Any strategy but concurrency; other numbers are another cell.
struct OwnLimit {
  std::string_view space;  // keeps the keys of different protocols apart
  std::string_view key;
  const Limit& limit;
  std::string_view owner{};  // of whose share the cell is; empty: no agent's
};

class OwnLimits {
 public:
  enum class Use : std::uint8_t { kCharge, kPeek };
  // Called once, from another thread.
  using Done = std::function<void(const Decision&)>;

  OwnLimits(Clock& clock, Cells& cells, const Aftermath& aftermath)
      : clock_(clock), cells_(cells), aftermath_(aftermath) {}

  // CL.THROTTLE: a bucket as redis-cell has it. Different numbers for one key go on from what was used, as they do
  // there. A quantity of 0 looks and charges nothing. An Error: the numbers make no bucket.
  [[nodiscard]] Result<Decision> throttle(Nanos now, const ThrottleKey& key, const Gcra& bucket, Units quantity);
  // The same without waiting for a remote store. nullopt: what `make_done` makes, only then, gets the decision.
  [[nodiscard]] std::optional<Result<Decision>> throttle_or_wait(Nanos now, const ThrottleKey& key, const Gcra& bucket,
                                                                 Units quantity, absl::FunctionRef<Done()> make_done);
  // Fetches ahead what throttle() of that key will need.
  void expect_throttle(const ThrottleKey& key) const noexcept;

  [[nodiscard]] Decision check(Nanos now, const OwnLimit& own, Units cost, Use use = Use::kCharge);
  // The same without waiting for a remote store, as throttle_or_wait() does it.
  [[nodiscard]] std::optional<Decision> check_or_wait(Nanos now, const OwnLimit& own, Units cost, Use use,
                                                      absl::FunctionRef<Done()> make_done);
  void refund(const OwnLimit& own, Units cost, Nanos now);

  // Drops all cells of such limits, in this process; returns how many there were.
  std::size_t clear() noexcept { return cells_.memory().clear_callers(); }
  [[nodiscard]] std::size_t cells() const noexcept { return cells_.memory().caller_cells(); }

 private:
  [[nodiscard]] base::Hash128 throttle_cell(const ThrottleKey& key) const noexcept;
  // The charge's limit is left for the caller to set.
  [[nodiscard]] store::Charge throttle_charge(const ThrottleKey& key, Units quantity) const;
  [[nodiscard]] store::Charge charge_of(const OwnLimit& own, Units cost) const;
  [[nodiscard]] store::Ask ask_of(Nanos now, Use use, std::string_view owner) const;
  [[nodiscard]] Decision decide(const store::Applied& applied, const core::Outcome& outcome,
                                const store::Ask& ask) const;
  [[nodiscard]] Decision apply(const store::Charge& charge, const store::Ask& ask);
  // Asks the remote store about a charge of that limit. REQUIRES: there is a remote store.
  void ask_remote(const store::Charge& charge, const Limit& limit, const store::Ask& ask, Done done);

  Clock& clock_;
  Cells& cells_;
  const Aftermath& aftermath_;
};

}  // namespace headgate::engine

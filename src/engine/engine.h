// The Engine answers checks: it matches policies, makes a list of what is to be charged, has the store judge and charge
// it all or not at all, and decides what comes of it.
//
// Safe for concurrent use. A check waits for nothing but the locks of the cells it charges, and allocates nothing where
// those cells exist and the check is allowed. With a remote store check() waits for that store, and check_or_wait()
// does not: a thread that serves connections calls the latter.
// The engine's other jobs are classes of their own, which it hands out.
#pragma once

#include <absl/functional/function_ref.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/aftermath.h"
#include "engine/allowance_limits.h"
#include "engine/cells.h"
#include "engine/check_decision.h"
#include "engine/controls.h"
#include "engine/done.h"
#include "engine/event.h"
#include "engine/explain.h"
#include "engine/holds.h"
#include "engine/matcher.h"
#include "engine/own_limits.h"
#include "engine/queue.h"
#include "engine/request.h"

namespace headgate::engine {

struct EngineOptions {
  Clock* clock = nullptr;  // the system's if none
  std::size_t max_cells = 10'000'000;
  std::size_t max_caller_cells = 0;     // of limits that callers name (see OwnLimits); 0: half
  std::size_t max_cells_per_agent = 0;  // made by the checks of one agent; 0: a tenth, at least 4,096
  AtCap at_cap = AtCap::kRefuseNew;
  std::uint64_t seed = 0;  // 0: a random one
  EventSink* sink = nullptr;
  std::size_t max_leases = 1'000'000;
  // Where cells are, if not in this process; it must outlive all calls, and every node needs the same seed. While it is
  // unreachable, policies do as their on_store_failure says, and cells in this process stand in.
  store::RemoteStore* remote = nullptr;
  // A check that the remote store denied for now waits in line: have poll() called.
  std::function<void()> wake{};
  // A reported load is forgotten after so long, and an automatic emergency with it; 0: never.
  Nanos report_ttl{std::chrono::seconds{60}};
};

class Engine {
 public:
  // Starts with the built-in tier limits.
  explicit Engine(const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Clock& clock() const noexcept { return clock_; }
  [[nodiscard]] Controls& controls() noexcept { return controls_; }
  [[nodiscard]] Holds& holds() noexcept { return holds_; }
  [[nodiscard]] Queue& queue() noexcept { return queue_; }
  [[nodiscard]] OwnLimits& own_limits() noexcept { return own_limits_; }
  [[nodiscard]] AllowanceLimits& allowances() noexcept { return allowances_; }
  [[nodiscard]] Cells& cells() noexcept { return cells_; }
  [[nodiscard]] Aftermath& aftermath() noexcept { return aftermath_; }

  // Replaces all policies (see Controls::load).
  Result<void> load(policy::Document document) { return controls_.load(std::move(document)); }
  [[nodiscard]] std::shared_ptr<const Ruleset> rules() const { return controls_.rules(); }

  // Charges every matching policy, or none: a denial leaves no trace. Checks that could queue are denied, with `waits`
  // set.
  [[nodiscard]] CheckDecision check(const Check& check) { return check_at(clock_.now(), check); }
  [[nodiscard]] CheckDecision check_at(Nanos now, const Check& check, const Account& account = {}) {
    CheckDecision decision;
    check_at(now, check, decision, account);
    return decision;
  }
  // In place, since a decision is large. REQUIRES: `decision` is new.
  void check_at(Nanos now, const Check& check, CheckDecision& decision, const Account& account = {}) {
    (void)check_or_wait({now, check, account, OnDenial::kAnswer}, decision, nullptr);
  }

  // The same without waiting for a remote store. 0: `decision` is the answer. Otherwise what `make_done` makes, only
  // then, is called exactly once with the answer: from here, poll(), Queue::cancel(), the destructor or a thread of the
  // store; Queue::cancel() takes what is returned. With OnDenial::kQueue a check that its policies let queue waits for
  // room: in order of priority, then by turns of the owners, until their max_wait (or the check's own, if that is
  // shorter) is over. in_flight(): a remote store has been asked, which does not take long; the check may come to wait
  // in line only then.
  // REQUIRES: `decision` is new, and request.on_denial is not kRetry.
  using Done = engine::Done;
  using MakeDone = absl::FunctionRef<Done()>;
  std::uint64_t check_or_wait(const Request& request, CheckDecision& decision, MakeDone make_done) {
    return check_or_wait(request, decision, &make_done);
  }
  [[nodiscard]] static constexpr bool in_flight(std::uint64_t waiting) noexcept {
    return (waiting & Queue::kInFlight) != 0;
  }
  // The same for a caller that has a `done`, which is called in any case. 0: it has been called.
  std::uint64_t check_async(const Check& check, const Done& done);

  // All of these checks, or none: they are judged one after the other, and when one is denied, the others are only
  // peeked at, and whatever was charged is given back before `done` is called. `each` gets every decision, in their
  // order, as if it had been asked alone; then `done` gets whether all are allowed. Both are called before this
  // returns, or, with a remote store, from another thread. These checks neither hold nor wait in line. They are copied
  // only where they must outlive the call. `owner`: see Account.
  struct AllAnswered {
    std::function<void(std::size_t nth, const CheckDecision& decision)> each;
    std::function<void(bool allowed)> done;
  };
  void check_all(Nanos now, std::span<const Check> checks, AllAnswered answered, std::string_view owner = {});
  // Gives the cost of the check back to every policy that matches it, as far as it is still charged. Nothing for a
  // check that would be refused as invalid. With kUndo, policies that only warn or are monitored may not have been
  // charged, and are left alone.
  void refund(Nanos now, const Check& check, GiveBack what = GiveBack::kReturned, const Account& account = {});

  [[nodiscard]] Explanation explain(const Check& check);
  // How an agent stands against the built-in limit of each tier, on one channel. Charges nothing.
  struct TierUsage {
    std::string_view tier;
    double limit = 0;
    double remaining = 0;
    Nanos reset_after{0};
    bool overridden = false;
  };
  [[nodiscard]] std::vector<TierUsage> tier_usage(std::string_view agent, std::string_view channel);

  // Serves the queue and lets leases expire; returns the instant at which something is next due (kMaxTime: nothing).
  Nanos poll();
  // Drops idle cells and quiet agents, in small steps; call it every second or so.
  void maintain(std::size_t cells = 10'000);
  // Cells to disk and back. restore() needs an engine that has not answered anything yet.
  Result<void> save(const std::string& path) const;
  Result<std::size_t> restore(const std::string& path);

 private:
  struct Flight;  // a check that a remote store has been asked about
  struct Series;  // checks that are all admitted, or none

  // The one way to a decision, which all public calls end in. Without a `make_done` it waits for a remote store.
  std::uint64_t check_or_wait(const Request& asked, CheckDecision& decision, const MakeDone* make_done);
  // Makes the list of charges, and says how the store is to apply it. False: the check is decided already.
  [[nodiscard]] bool prepare(const Request& request, ChargeList& list, CheckDecision& decision);
  // False: more limits apply than may.
  [[nodiscard]] bool make_list(const Request& request, const State& state, policy::Fields& fields, ChargeList& list,
                               CheckDecision& decision);
  [[nodiscard]] bool prepare_ask(const Request& request, ChargeList& list, CheckDecision& decision);
  // Decides what comes of the store's answer.
  void conclude(const Request& request, const Answered& answered, const ChargeList& list, CheckDecision& decision);
  // Asks the remote store; its answer is concluded by land().
  std::uint64_t take_off(const Request& request, std::uint64_t kicks, const ChargeList& list, CheckDecision& decision,
                         MakeDone make_done);
  void land(Flight& flight, const Result<store::RemoteStore::Answer>& answer);

  Clock& clock_;
  const std::function<void()> wake_;
  Cells cells_;
  Aftermath aftermath_;
  Queue queue_;
  Controls controls_;
  Matcher matcher_;
  Holds holds_;
  OwnLimits own_limits_;
  AllowanceLimits allowances_;
  std::mutex poll_mutex_;
};

}  // namespace headgate::engine

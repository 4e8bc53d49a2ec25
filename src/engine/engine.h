// The Engine answers checks: it matches policies, makes a plan of what is to be charged, has the store judge and charge
// it all or not at all, and decides what comes of it.
//
// Safe for concurrent use. check() waits for nothing but the locks of the cells it charges, and allocates nothing where
// those cells exist and the check is allowed; with a remote store it waits for that, and check_or_wait() and
// check_later() do not: a thread that serves connections uses these.
// Policies, overrides, exemptions and the state of the controls are seen whole or not at all, from the next check on.
#pragma once

#include <absl/functional/function_ref.h>

#include <atomic>
#include <cassert>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/published.h"
#include "control/emergency.h"
#include "control/load.h"
#include "control/violations.h"
#include "engine/allowances.h"
#include "engine/arrears.h"
#include "engine/check_decision.h"
#include "engine/counters.h"
#include "engine/done.h"
#include "engine/escalations.h"
#include "engine/event.h"
#include "engine/leases.h"
#include "engine/recall.h"
#include "engine/ruleset.h"
#include "engine/state.h"
#include "engine/waiting_room.h"
#include "store/memory/memory_store.h"
#include "store/remote_store.h"

namespace headgate::engine {

struct EngineOptions {
  Clock* clock = nullptr;  // the system's if none
  std::size_t max_cells = 10'000'000;
  std::size_t max_caller_cells = 0;     // of limits that callers name (see throttle() and check_own()); 0: half
  std::size_t max_cells_per_agent = 0;  // made by the checks of one agent; 0: a tenth, at least 4,096
  AtCap at_cap = AtCap::kRefuseNew;
  std::uint64_t seed = 0;  // 0: a random one
  EventSink* sink = nullptr;
  std::size_t max_leases = 1'000'000;
  // Where cells are, if not in this process; it must outlive all calls, and every node needs the same seed. While it is
  // away, policies do as their on_store_failure says, and cells in this process stand in.
  store::RemoteStore* remote = nullptr;
  // A check that the remote store denied for now waits in line: have poll() called.
  std::function<void()> wake{};
  // A reported load is forgotten after so long, and an automatic emergency with it; 0: never.
  Nanos report_ttl{std::chrono::seconds{60}};
};

// What an operator has set for one agent: any subset of tiers.
struct Override {
  std::string agent;
  std::array<std::optional<policy::TierLimit>, policy::kTierCount> tiers;
};

// One policy, as explain() sees it.
struct Explained {
  const policy::Policy* policy = nullptr;
  std::string why_not;  // empty: it matches
  std::string key;      // "agent=A session=s1"
  bool enforced = true;
  std::string variant;
  struct Cell {
    std::string limit;  // "sliding_window 50/60s"
    double capacity = 0;
    double remaining = 0;
    Nanos reset_after{0};
    bool fits = true;
  };
  std::vector<Cell> cells;
};

// Why a policy has no part in the decision: it does not match, or counts a unit that the check has no cost in. Empty:
// it has one.
[[nodiscard]] std::string why_not(const Explained& about, const Check& check);

struct Explanation {
  CheckDecision decision;  // as a peek
  std::vector<Explained> policies;
};

class Engine {
 public:
  // Starts with the built-in tier limits.
  explicit Engine(const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Clock& clock() const noexcept { return *clock_; }

  // Replaces all policies. Cells of limits that keep their identity live on (see LimitBook).
  // Fails only when decisions on too many earlier policies are still held on to.
  Result<void> load(policy::Document document);
  [[nodiscard]] std::shared_ptr<const Ruleset> rules() const;

  // Charges every matching policy, or none: a denial leaves no trace. Checks that could queue are denied, with `waits`
  // set.
  [[nodiscard]] CheckDecision check(const Check& check) { return check_at(clock_->now(), check); }
  [[nodiscard]] CheckDecision check_at(Nanos now, const Check& check);
  // In place, since a decision is large. REQUIRES: `decision` is new.
  void check_at(Nanos now, const Check& check, CheckDecision& decision) {
    assert(decision.judged.empty() && decision.outcomes.empty());
    judge(now, check, Asker::kNow, decision);
  }

  // The same, but a check that may queue waits for room: in order of priority, then arrival, until its policy's
  // max_wait (or the check's own, if that is shorter) is over. `done` is called exactly once, from here, poll(),
  // cancel() or the destructor. Returns what cancel() takes, or 0 if it was answered at once.
  using Done = engine::Done;
  std::uint64_t check_async(const Check& check, const Done& done);
  // The same for askers who would rather not make a `done` before they need one. 0: `decision` is the answer.
  // in_flight(): a remote store has been asked, which does not take long; the check may come to wait in line only then.
  [[nodiscard]] static constexpr bool in_flight(std::uint64_t waiting) noexcept { return (waiting & kInFlight) != 0; }
  std::uint64_t check_or_wait(Nanos now, const Check& check, CheckDecision& decision,
                              absl::FunctionRef<Done()> make_done);
  // The same, but it never waits in line: a check that could is denied, with `waits` set.
  std::uint64_t check_later(Nanos now, const Check& check, CheckDecision& decision,
                            absl::FunctionRef<Done()> make_done);
  // True: it was told so. False: it has been answered, or is just being tried and will be answered either way.
  bool cancel(std::uint64_t waiting);
  // Ends the waits of askers that are not valid any more (see Done) with kRevoked, and returns how many. Call it every
  // second or so: poll() admits none of them either, but looks at the first of each line only.
  std::size_t revoke_invalid();
  // Serves waits and lets leases expire; returns the instant at which something is next due (kMaxTime: nothing).
  Nanos poll();
  [[nodiscard]] std::size_t waiting() const noexcept { return room_.size(); }

  // With a remote store: what part of each limit this node admits alone while that is away (0 < share <= 1).
  void set_local_share(double share);
  // Charges the remote store what was admitted while it was away, as far as that still counts. Call it once it is back.
  void make_up();
  [[nodiscard]] std::size_t arrears() const noexcept { return arrears_.size(); }
  [[nodiscard]] std::uint64_t arrears_lost() const noexcept { return arrears_.lost(); }  // there were too many
  [[nodiscard]] bool has_remote() const noexcept { return remote_ != nullptr; }
  // Checks that cells of this process have judged because the remote store was away, and checks that were denied
  // because it was not away but did not answer in time. Since the start.
  [[nodiscard]] std::uint64_t stand_ins() const noexcept { return stand_ins_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t late_answers() const noexcept { return late_.load(std::memory_order_relaxed); }

  // All of these checks, or none: they are judged one after the other, and when one is denied, the others are only
  // looked at, and whatever was charged is given back before `done` is called. `each` hears every decision, in their
  // order, as if it had been asked alone; then `done` hears whether all are allowed. Both are called before this
  // returns, or, with a remote store, from another thread. Holds and waits are not for these. The checks are copied
  // only where they must outlive the call.
  struct AllAnswered {
    std::function<void(std::size_t nth, const CheckDecision& decision)> each;
    std::function<void(bool allowed)> done;
  };
  void check_all(Nanos now, std::span<const Check> checks, AllAnswered answered);
  // Gives the cost of the check back to every policy that matches it, as far as it is still charged. Nothing for a
  // check that would be refused as invalid.
  //
  // kReturned: a caller gives back what it states, which policies with `holds: false` keep. kUndo: a check that was
  // charged is denied after all, so no policy keeps anything; policies that only warn or are monitored may not have
  // been charged, and are left alone.
  enum class GiveBack : std::uint8_t { kReturned, kUndo };
  void refund(Nanos now, const Check& check, GiveBack what = GiveBack::kReturned);

  // Limits that no policy names but the asker itself.
  //
  // CL.THROTTLE: a bucket as redis-cell has it. Different numbers for one key go on from what was used, as they do
  // there. A quantity of 0 looks and charges nothing. An Error: the numbers make no bucket. Each owner has keys of its
  // own; those without a name share theirs.
  struct ThrottleKey {
    std::string_view key;
    std::string_view owner{};  // keeps its keys apart from others'; empty: the keys that all share
    std::string_view maker{};  // whose share of cells it takes; empty: its owner's
    [[nodiscard]] std::string_view share() const noexcept { return maker.empty() ? owner : maker; }
  };
  [[nodiscard]] Result<Decision> throttle(Nanos now, const ThrottleKey& key, const Gcra& bucket, Units quantity);
  [[nodiscard]] Result<Decision> throttle(Nanos now, std::string_view key, const Gcra& bucket, Units quantity) {
    return throttle(now, ThrottleKey{key}, bucket, quantity);
  }
  // The same for askers who would rather not wait for a remote store: nullopt: `done`, which is made only then, will be
  // told, once, from another thread.
  using Throttled = std::function<void(const Decision&)>;
  [[nodiscard]] std::optional<Result<Decision>> throttle_or_wait(Nanos now, const ThrottleKey& key, const Gcra& bucket,
                                                                 Units quantity,
                                                                 absl::FunctionRef<Throttled()> make_done);
  // Fetches ahead what throttle() of that key will need.
  void expect_throttle(const ThrottleKey& key) const noexcept;
  // Forgets all that callers have named, in this process; returns how many cells that were.
  std::size_t clear_callers() noexcept { return store_.clear_callers(); }
  [[nodiscard]] std::size_t caller_cells() const noexcept { return store_.caller_cells(); }
  [[nodiscard]] std::size_t cells() const noexcept { return store_.cells(); }
  // Any strategy but concurrency; other numbers are another cell.
  struct OwnLimit {
    std::string_view space;  // keeps the keys of different askers apart
    std::string_view key;
    const Limit& limit;
    std::string_view owner{};  // of whose share the cell is; empty: no agent's
  };
  enum class Use : std::uint8_t { kCharge, kPeek };
  [[nodiscard]] Decision check_own(Nanos now, const OwnLimit& own, Units cost, Use use = Use::kCharge);
  // The same for askers who would rather not wait for a remote store, as throttle_or_wait() has it.
  [[nodiscard]] std::optional<Decision> check_own_or_wait(Nanos now, const OwnLimit& own, Units cost, Use use,
                                                          absl::FunctionRef<Throttled()> make_done);
  void refund_own(const OwnLimit& own, Units cost, Nanos now);

  // Limits that a check brings along (see Check::allowances). The limit lives as long as the engine; nullptr: there are
  // too many different ones.
  static constexpr std::size_t kMostAllowanceLimits = 100'000;
  [[nodiscard]] const WorkingLimit* allowance_limit(const Limit& limit);
  // The cell of whoever these names stand for, in this order.
  [[nodiscard]] base::Hash128 allowance_cell(std::span<const std::string_view> names) const noexcept;
  // How they stand; charges nothing. `done` is called once with an outcome for each: before this returns, or, with a
  // remote store, from another thread.
  using Looked = std::function<void(std::span<const core::Outcome> outcomes)>;
  void look_at(std::span<const Allowances::One> allowances, Looked done);
  // The same, and waits for a remote store. REQUIRES: outcomes.size() == allowances.size().
  void look_at(std::span<const Allowances::One> allowances, std::span<core::Outcome> outcomes);
  // Charges what is missing until so many units are used, as far as the limit goes. False: the store did not answer.
  bool raise_to(const Allowances::One& allowance, Units used);

  // How an agent stands against the built-in limit of each tier, on one channel. Charges nothing.
  struct TierUsage {
    std::string_view tier;
    double limit = 0;
    double remaining = 0;
    Nanos reset_after{0};
    bool overridden = false;
  };
  [[nodiscard]] std::vector<TierUsage> tier_usage(std::string_view agent, std::string_view channel);

  // Leases. `owner` is the agent that the caller speaks for; empty: anybody who knows the lease.
  [[nodiscard]] Result<Settled> settle(std::string_view lease, std::string_view owner, std::span<const Cost> actual);
  [[nodiscard]] Result<Settled> release(std::string_view lease, std::string_view owner);
  // Until when it holds now, by the wall clock.
  [[nodiscard]] Result<Nanos> renew(std::string_view lease, std::string_view owner);
  [[nodiscard]] std::size_t open_leases() const noexcept { return leases_.open(); }

  // Set at run time, effective on the very next check. An empty override reverts.
  Result<void> set_override(const Override& override);
  bool clear_override(std::string_view agent);
  [[nodiscard]] std::vector<Override> overrides() const;
  void set_exempt(const std::vector<std::string>& agents);  // replaces the list
  void add_exempt(const std::string& agent);
  bool remove_exempt(const std::string& agent);
  [[nodiscard]] std::vector<std::string> exempt() const;

  // The controls. Each may change what limits stand at, before it returns.
  // `age`: how long ago it was reported, where another node was told. One that has expired since is not taken.
  void report_load(double load, Nanos age = Nanos{0});
  void clear_load_report();
  void observe_load(const control::LoadReading& reading);  // from sensors, every so often
  Result<void> emergency_on(const control::EmergencyOrder& order);
  void emergency_off(const std::string& by);
  void restore_emergency(const control::Emergency& state);  // as it was before a restart
  // The node whose load has turned the emergency on is gone: it ends unless the load here is reason enough.
  void emergency_node_lost(std::string_view node);
  [[nodiscard]] control::Emergency emergency() const;
  struct Load {
    std::optional<double> load;      // the worst of what is known
    std::optional<double> reported;  // from outside
    std::optional<double> followed;  // by limits and the automatic emergency: without the sensors, unless they count
    bool sensors = false;            // whether they do
    control::LoadLevel level = control::LoadLevel::kNormal;
    double factor = 1;
  };
  [[nodiscard]] Load load_state() const;
  // The pace at which commands are to run: 1 full speed, 0 not at all.
  [[nodiscard]] double throttle_factor() const { return state_->pin()->throttle_factor; }

  // Whether the agent has active violations: a scheduler gives it no new work.
  [[nodiscard]] bool rate_limited(std::string_view agent) const noexcept {
    return violations_.rate_limited(agent, clock_->now());
  }
  [[nodiscard]] std::vector<control::Offender> offenders(std::size_t count) const {
    return violations_.top(count, clock_->now());
  }

  [[nodiscard]] Explanation explain(const Check& check);
  // By policy id, or id/variant.
  [[nodiscard]] std::vector<std::pair<std::string, Counts>> counts() const { return counters_.all(); }
  [[nodiscard]] LimiterTotals totals() const noexcept { return store_.totals(); }
  // Drops idle cells and quiet agents, in small steps; call it every second or so.
  void maintain(std::size_t cells = 10'000);

  // Cells to disk and back. restore() needs an engine that has not answered anything yet.
  Result<void> save(const std::string& path) const;
  Result<std::size_t> restore(const std::string& path);

 private:
  struct Plan;
  // Who asks: somebody who takes no for an answer, somebody who would wait, somebody who has been waiting.
  enum class Asker : std::uint8_t { kNow, kMayWait, kFromLine };

  // Who has judged a plan. A stand-in: the cells of this process, while the remote store is away.
  enum class AnsweredBy : std::uint8_t { kMemory, kRemote, kStandIn, kNobody };
  struct Answered {
    store::Applied applied{};
    Nanos at{0};  // kRemote: by its clock
    AnsweredBy by = AnsweredBy::kMemory;
  };
  struct Flight;  // a check that a remote store has been asked about

  // All ways to a decision: prepare() makes the plan, somebody judges and charges it, conclude() decides what comes of
  // it.
  void judge(Nanos now, const Check& check, Asker asker, CheckDecision& decision);
  // False: it is decided already.
  [[nodiscard]] bool prepare(Nanos now, const Check& check, Asker asker, Plan& plan, CheckDecision& decision);
  // Whether the check has to stand behind others; says in the plan where.
  [[nodiscard]] bool line_before(const Check& check, Plan& plan, const CheckDecision& decision) const;
  void conclude(Nanos now, const Check& check, Asker asker, const Answered& answered, const Plan& plan,
                CheckDecision& decision);
  // Waits for a remote store.
  [[nodiscard]] Answered apply_now(Plan& plan, CheckDecision& decision);
  [[nodiscard]] Answered apply_far(Plan& plan, CheckDecision& decision);
  // nullopt: the remote store must be asked.
  [[nodiscard]] std::optional<Answered> try_far(const Plan& plan, CheckDecision& decision);
  // What becomes of a plan that the remote store has not answered. While that is away, the plan becomes what this node
  // may admit alone. An answer that is merely late denies the check, unless all its policies are open: who admitted
  // it here would admit more than the limit while the other nodes reach the store.
  [[nodiscard]] Answered unanswered(const Error& why, Plan& plan, CheckDecision& decision);
  [[nodiscard]] Answered stand_in(Plan& plan, CheckDecision& decision);
  void land(Flight& flight, const Result<store::RemoteStore::Answer>& answer);
  // check_or_wait() and check_later().
  std::uint64_t start(Nanos now, const Check& check, Asker asker, CheckDecision& decision,
                      absl::FunctionRef<Done()> make_done);
  struct Series;  // checks that are all admitted, or none
  static constexpr std::uint64_t kInFlight = std::uint64_t{1} << 63;
  // After a late answer: the store is there, and the next one is likely to be in time.
  static constexpr Nanos kLateRetry = std::chrono::milliseconds{100};
  // Has a check that was denied for now wait in line. 0: it is denied for good.
  struct Arrival {
    Nanos now{0};
    std::uint64_t kicks = 0;  // before it was judged
    std::uint64_t id = 0;     // 0: it has none yet
  };
  std::uint64_t queue_up(const Arrival& arrival, const Check& check, CheckDecision& decision,
                         absl::FunctionRef<Done()> make_done);
  // Charges that belong to no policy, where the cells are; waits for a remote store. nullopt: it did not answer.
  [[nodiscard]] std::optional<store::Applied> apply_there(std::span<const store::Charge> charges, const store::Ask& ask,
                                                          std::span<core::Outcome> outcomes);
  // The same, or in this process if the store does not answer.
  store::Applied apply_plain(std::span<const store::Charge> charges, const store::Ask& ask,
                             std::span<core::Outcome> outcomes);
  void refund_one(const store::Charge& charge, Nanos charged_at, Nanos now);
  // Charges the remote store what was used already, and does not wait to hear of it: where it does not answer, it is
  // owed. REQUIRES: the arrear's numbers are what the charge is judged by.
  enum class Rest : std::uint8_t { kLost, kAhead };  // of what does not fit
  void charge_owed(const store::Charge& charge, Arrear arrear, const store::Ask& ask, Rest rest);
  // The cost of a check in one unit: as it came, and in whole units, rounded up.
  struct Amount {
    double exact;  // negative: it has none of that unit
    Units whole;
  };
  using Amounts = std::array<Amount, kMaxUnits>;  // by unit of the rules
  static void amounts_of(std::span<const Cost> costs, const Ruleset& rules, Amounts& amounts) noexcept;
  // Adds what the matching policies charge; false: too many of them.
  [[nodiscard]] bool add_to_plan(const State& state, policy::Fields& fields, bool parent, Plan& plan,
                                 CheckDecision& decision);
  // The same for a check that is not remembered, but will be where there is a memory.
  struct Remembered {
    Recall::Memory* memory = nullptr;
    std::uint64_t identity = 0;
  };
  [[nodiscard]] bool add_matching(const State& state, policy::Fields& fields, bool parent, const Remembered& as,
                                  Plan& plan, CheckDecision& decision);
  [[nodiscard]] bool add_legs(const State& state, policy::Fields& fields, const Recall::Memory::Known& known,
                              bool parent, Plan& plan, CheckDecision& decision) const;
  // The same from a draft. REQUIRES: plan and decision are empty.
  void follow(const Recall::Draft& draft, const base::Hash128* cells, Plan& plan,
              CheckDecision& decision) const noexcept;
  // nullptr: there is none.
  [[nodiscard]] const Recall::Draft* draft_of(const State& state, policy::Fields& fields, const Route& route,
                                              Recall::Memory& memory);
  void decide_allowed(const Check& check, const Plan& plan, const store::Applied& applied, CheckDecision& decision);
  // What is to be said about these charges (bit i: the i-th), though they were admitted; about the nth of them.
  void warn(const Check& check, const Plan& plan, std::uint64_t charges, CheckDecision& decision);
  void warn(const Check& check, const Plan& plan, std::size_t nth, Judged& judged, CheckDecision& decision);
  void decide_denied(const Plan& plan, const store::Applied& applied, CheckDecision& decision);
  void deny(CheckDecision& decision, Why why) const noexcept;
  [[nodiscard]] static bool add_allowances(const Allowances& allowances, Plan& plan, CheckDecision& decision);
  // Whether any of them denies; says so, and takes the longest wait on.
  [[nodiscard]] static bool decide_by_allowances(CheckDecision& decision, Nanos& longest);
  static void forget_outcomes(CheckDecision& decision) noexcept;  // nobody has judged anything
  void deny_unanswered(CheckDecision& decision, bool late) const;
  // What a denial entails: counts, events, back-off, escalation.
  void after_denial(Nanos now, const Check& check, CheckDecision& decision);
  void after_soft(Nanos now, const Check& check, CheckDecision& decision);
  void escalate(Nanos now, const Check& check, const policy::Policy& policy, CheckDecision& decision);
  [[nodiscard]] bool take_lease(Nanos now, const Check& check, const Plan& plan, const Answered& answered,
                                CheckDecision& decision);
  void note_unknown(const Check& check, Nanos wall);
  [[nodiscard]] base::Hash128 throttle_cell(const ThrottleKey& key) const noexcept;
  // Charges of limits that no policy names. The limit is left for the caller to set.
  [[nodiscard]] store::Charge throttle_charge(const ThrottleKey& key, Units quantity) const;
  [[nodiscard]] store::Charge own_charge(const OwnLimit& own, Units cost) const;
  [[nodiscard]] store::Ask own_ask(Nanos now, Use use, std::string_view owner) const;
  [[nodiscard]] Decision own_decision(const store::Applied& applied, const core::Outcome& outcome,
                                      const store::Ask& ask) const;
  [[nodiscard]] Decision apply_own(const store::Charge& charge, const store::Ask& ask);
  // Asks the remote store about a charge of that limit; `done` hears the decision. REQUIRES: there is a remote store.
  void ask_own(const store::Charge& charge, const Limit& limit, const store::Ask& ask, Throttled done);
  // Without an answer: by a cell of this process, or, where the store is merely late, denied for a moment.
  store::Applied judge_own_unanswered(const Error& why, const store::Charge& charge, const store::Ask& ask,
                                      core::Outcome& outcome);
  void tell(const Event& event) const noexcept {
    if (sink_ != nullptr) sink_->on_event(event);
  }
  void tell_share_full(std::string_view owner, Nanos wall) const;
  void give_back(const Lease& lease, Nanos now, GiveBack what);
  [[nodiscard]] Result<Settled> end_hold(std::string_view lease, std::string_view owner, GiveBack what);
  // What policies with `holds: false` keep is charged, whatever was used.
  static void count_final(const Lease& lease, Settled& settled);
  // A remote store gives back later: a line that is tried before that finds no room, and nothing would try it again.
  [[nodiscard]] store::RemoteStore::Told kick_when_told(const base::Hash128& cell);
  [[nodiscard]] Nanos retry_in(const CheckDecision& decision) const noexcept;
  void release_slot(const Held& held, LeaseId slot, Nanos now);
  void refund_held(const Held& held, const store::Charge& charge, Nanos now, Nanos wall);
  void expire_leases(Nanos now);
  void serve_lines(Nanos now);
  // Ends a wait without a charge. False: as for cancel().
  bool take_off(std::uint64_t waiting, Why why);
  void answer_uncharged(const WaitingRoom::Waiting& waiting, Why why, Nanos now) const;
  struct FoundLease {
    std::shared_ptr<Lease> open;  // nullptr: it has ended
    Settled settled;              // then
  };
  [[nodiscard]] Result<FoundLease> find_lease(std::string_view id, std::string_view owner, Nanos now,
                                              std::unique_lock<std::mutex>& guard);
  double settle_part(const Held& held, double actual, Nanos now, Nanos wall, LeaseId slot);

  // All below under control_mutex_.
  [[nodiscard]] bool publish_locked();
  void step_load_locked(const control::LoadReading& reading, Nanos now);
  void step_controls_locked(Nanos now);
  void change_factors_locked(Nanos now, const std::string& why);
  [[nodiscard]] control::LoadSettings load_settings_locked() const;
  void scale_all_locked();
  void rebuild_overrides_locked();
  void rebuild_exempt_locked();

  Clock* clock_;
  EventSink* sink_;
  store::MemoryStore store_;
  store::RemoteStore* remote_;  // nullptr: store_ has all cells
  std::function<void()> wake_;
  base::Hasher hasher_;  // of the store
  Counters counters_;
  Recall recall_;
  LimitBook book_;
  control::Violations violations_;
  Escalations escalations_;
  Leases leases_;
  WaitingRoom room_;
  Arrears arrears_;
  std::atomic<std::uint64_t> stand_ins_{0};
  std::atomic<std::uint64_t> late_{0};
  std::atomic<bool> enforce_backoff_{false};

  mutable std::mutex control_mutex_;  // guards all below, and whoever publishes
  const Nanos report_ttl_;
  std::uint64_t states_ = 0;  // published so far
  std::shared_ptr<const Ruleset> rules_;
  std::vector<Override> override_list_;
  std::shared_ptr<const OverrideTable> overrides_;
  std::set<std::string, std::less<>> exempt_list_;
  std::vector<std::string> document_exempt_;
  std::shared_ptr<const ExemptTable> exempt_;
  control::LoadState load_;
  control::AdaptiveState by_report_;   // follows what is reported
  control::AdaptiveState by_sensors_;  // follows the sensors as well
  control::Emergency emergency_;
  // After a restart an automatic emergency waits so long for the load to be known again.
  Nanos load_awaited_until_{0};
  Factors factors_;
  Nanos controls_at_{0};  // when they were last stepped
  std::unordered_map<std::string, std::unique_ptr<WorkingLimit>> allowance_limits_;
  std::set<std::string, std::less<>> unknown_operations_;
  std::mutex unknown_mutex_;

  std::mutex poll_mutex_;

  std::unique_ptr<base::Published<State>> state_;
};

}  // namespace headgate::engine

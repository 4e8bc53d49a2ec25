// Commands under quotas: one check takes a user's day, week and month together with every policy that matches, all or
// nothing, has the ledger keep it, and lets the command start when it is its turn.
//
// Safe for concurrent use. A check is answered from memory and waits for nothing, but where the store is Redis, where
// `durability: sync` has it wait for the disk, and where it is ready to wait in line.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headgate/limiter.h"
#include "quota/book.h"
#include "quota/command_watch.h"
#include "quota/ledger.h"
#include "quota/run_queue.h"
#include "service/service.h"

namespace headgate::service {

struct QuotasOptions {
  quota::BookOptions book{};
  quota::RunQueueOptions queue{};
  quota::CommandWatchOptions watch{};
  policy::OnStoreFailure on_store_failure = policy::OnStoreFailure::kLocal;
  Nanos kept_for{std::chrono::hours{24 * 90}};  // executions: what is older is not recorded any more
  // Executions that are recorded; a minute's worth may come at once.
  struct Records {
    std::int64_t per_second = 0;
    std::int64_t per_day = 0;
  };
  Records records{50, 100'000};         // of one user
  Records token_records{200, 400'000};  // by one token that binds no user, and so may name any number of them
};

// A command that a user wants to run.
struct QuotaAsk {
  std::string user{};
  std::string type{};
  std::string session{};
  std::string plan{};           // what the asker says the user's is; empty: it does not say
  double size = 0;              // of the command, in bytes
  std::optional<double> cpu{};  // estimates; none: the type's own
  std::optional<double> memory{};
  Nanos max_wait{0};
  int priority = 0;
  bool peek = false;
  std::string run{};  // the asker's name for it; empty: one is made up where it is needed
  std::string ip{};
  std::string recorder{};  // as for wait_to_record()
  std::string owner{};     // as Caller::owner
  // Whether the asker has gone away meanwhile, or may not be admitted any more. Called from several threads.
  std::function<bool()> gone{};
};

// Runs are known by their user and name: names belong to one user each. Neither has a line break in it.
[[nodiscard]] inline std::string run_key(std::string_view user, std::string_view run) {
  return std::string(user).append(1, '\n').append(run);
}
[[nodiscard]] inline std::string_view run_name(std::string_view key) noexcept {
  return key.substr(key.find('\n') + 1);  // one that the server has made up has no user
}

struct QuotaAnswer {
  bool allowed = false;
  std::string error{};   // when denied: "quota_exceeded", "throttled", "queue_full", "timed_out" or a policy's
  std::string reason{};  // for people
  std::string plan{};
  std::string counted_as{};
  std::array<quota::Amount, 3> remaining{};
  std::array<quota::Amount, 3> limits{};  // that are enforced; unlimited: none is
  std::array<Nanos, 3> resets_at{};       // wall clock
  Nanos wall{0};                          // when that was so
  double throttle_factor = 1;
  std::string warning{};
  std::optional<Nanos> estimated_start{};  // from now; nullopt: nothing to go by
  Nanos retry_after{0};
  Nanos delay{0};
  Nanos waited{0};
  std::string run{};  // empty: it is not counted
  Nanos run_ttl{0};   // a run that is not renewed for so long is taken to be over
  std::string policy_id{};
  std::string lease{};
  bool monitored = false;      // no quota refuses, nor does the load
  std::string would_reason{};  // then: why it would have been refused; empty: it would not
};

class Quotas final : private ClockListener {
 public:
  Quotas(Service& service, quota::Ledger& ledger, QuotasOptions options);
  ~Quotas();
  // Ends all waits with an answer; later checks do not wait. To be called once; other threads may still call check().
  void stop();
  Quotas(const Quotas&) = delete;
  Quotas& operator=(const Quotas&) = delete;

  // Tells `done` exactly once, from here or from another thread.
  using Done = std::function<void(const Result<QuotaAnswer>&)>;
  void check(QuotaAsk ask, Done done);

  // What a client says of a command besides what it did.
  struct About {
    std::string run{};   // its name; empty: it has none
    std::string plan{};  // what it was checked with; empty: none was named
  };
  // Keeps what was run, and ends its run. `done` as the ledger tells it.
  void record(quota::Execution execution, const About& about, quota::Ledger::Done done);
  // Asked before record(), counts one: 0, or how long the user, or the recorder, has to wait before another is
  // recorded. `recorder`: what names the user, where that may make users up; empty: it may not.
  struct RecordWait {
    Nanos wait{0};
    bool by_token = false;  // it is the recorder's bound
  };
  [[nodiscard]] RecordWait wait_to_record(const std::string& user, const std::string& recorder) noexcept;
  // While the disk is short of room nothing is recorded, so that what operators set can still be kept.
  void set_disk_low(bool low) noexcept { disk_low_.store(low, std::memory_order_relaxed); }
  [[nodiscard]] bool disk_low() const noexcept { return disk_low_.load(std::memory_order_relaxed); }

  struct Use {
    std::string type;
    std::array<quota::Amount, 3> limits{};
    std::array<Units, 3> used{};
    std::array<Nanos, 3> resets_at{};
    [[nodiscard]] quota::Amount remaining(std::size_t period) const noexcept;
  };
  struct Status {
    std::string plan;
    std::string timezone;
    quota::Mode mode = quota::Mode::kEnforce;
    std::vector<Use> types;
    std::string warning;
  };
  // `plan` as in a check: a rule's goes before it; empty: none is named.
  [[nodiscard]] Result<Status> status(const std::string& user, std::string_view plan);

  // The date of an instant where the user is: "2026-11-16".
  [[nodiscard]] std::string local_date(const std::string& user, const std::string& type, Nanos wall);

  // The error of a check whose asker was gone when it had waited: see QuotaAsk::gone.
  static constexpr std::string_view kUnauthorized = "unauthorized";
  // Ends a run, or a wait. `user`: whose it must be; empty: any user's, if only one has a run of that name.
  bool end(const std::string& run, const std::string& user);
  bool renew(const std::string& run, const std::string& user);
  struct Line {
    std::vector<quota::RunQueue::Waiting> waiting;
    std::vector<quota::RunQueue::Running> running;
    std::size_t waiting_count = 0;
    std::size_t running_count = 0;
  };
  // `user`: only what is its own; empty: that of all users. Positions are of the whole line.
  [[nodiscard]] Line line(std::size_t limit, std::string_view user = {}) const;

  // Puts back what the ledger knows of the periods that are still running, as far as the store has it not. Returns for
  // how many users and types; an Error where the ledger or the store cannot be asked. REQUIRES: no other call does so
  // at the same time, with the same cells. `go_on` is asked before each: false ends it, with an Error.
  Result<std::size_t> restore(const std::function<bool()>& go_on = [] { return true; });
  // About once a second: ends the waits of askers who are gone, and looks at the load.
  void tick();

  [[nodiscard]] quota::Book& book() noexcept { return book_; }
  [[nodiscard]] quota::Ledger& ledger() noexcept { return ledger_; }
  [[nodiscard]] const QuotasOptions& options() const noexcept { return options_; }
  [[nodiscard]] double factor() const { return service_.engine->controls().throttle_factor(); }

  struct Counts {
    std::atomic<std::uint64_t> allowed{0};
    std::atomic<std::uint64_t> denied{0};
    std::atomic<std::uint64_t> throttled{0};     // admitted at less than full speed
    std::atomic<std::uint64_t> would_refuse{0};  // in monitor mode
    std::atomic<std::uint64_t> recorded{0};
  };
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

 private:
  struct Ending {
    std::string_view error;
    std::string_view reason;
  };
  // `ending`: what is answered where it still waited.
  bool end(const std::string& run, const std::string& user, const Ending& ending);
  [[nodiscard]] std::string find_run_locked(const std::string& run, const std::string& user) const;
  struct Asking;
  using AskingPtr = std::shared_ptr<Asking>;

  // The calendar and the live numbers of one limit.
  struct Numbers {
    const engine::WorkingLimit* limit = nullptr;
    core::Calendar calendar;
  };
  // `amount` unlimited: so many that they are never used up, to count by.
  [[nodiscard]] Result<Numbers> numbers(quota::Amount amount, Period period, std::string_view timezone);
  // Whose cells: of a user's commands of a type, in one session where that has a limit of its own.
  [[nodiscard]] base::Hash128 cells_of(std::string_view user, std::string_view type,
                                       std::string_view session) const noexcept;

  [[nodiscard]] std::optional<Error> prepare(Asking& asking);
  // When it could start; nullopt: not known.
  [[nodiscard]] std::optional<Nanos> start_of(const Asking& asking, double pace) const;
  // What a run holds by its policies is held for as long as it runs.
  void hold_for_run(const Asking& asking, QuotaAnswer& answer);
  void judge(const AskingPtr& asking);
  // How the limits of the asking stand; `then` may be called before this returns.
  void look(const AskingPtr& asking, engine::AllowanceLimits::Looked then);
  void conclude(const AskingPtr& asking, const engine::CheckDecision& decision);
  void admit(const AskingPtr& asking, QuotaAnswer answer, Nanos wall, Nanos day);
  void refuse(const AskingPtr& asking, QuotaAnswer answer);
  void refuse_start(const AskingPtr& asking, std::string error, std::string reason, Nanos retry_after);
  void answer_standing(Asking& asking, std::span<const core::Outcome> outcomes, Nanos wall, QuotaAnswer& answer);
  static std::array<quota::Standing, 3> standings(const quota::Allowance& allowance, const std::array<Units, 3>& used);
  // What the ledger's rows come to in the periods that run now.
  struct Sums;
  using SumsByType = std::map<std::pair<std::string, std::string>, Sums>;  // by user and type
  [[nodiscard]] Result<SumsByType> sum_usage(const std::vector<quota::UsageRow>& rows, Nanos wall);
  void tell(const std::vector<quota::Alert>& alerts, Nanos wall);
  void clock_moved() noexcept override;
  void serve();
  void move_on(std::unique_lock<std::mutex>& guard);

  Service& service_;
  quota::Ledger& ledger_;
  std::unique_ptr<MemoryLimiter> records_;        // by user
  std::unique_ptr<MemoryLimiter> token_records_;  // by recorder
  std::unique_ptr<MemoryLimiter> token_refusals_;
  std::atomic<bool> disk_low_{false};
  const QuotasOptions options_;
  quota::Book book_;
  quota::CommandWatch watch_;
  Counts counts_;

  struct NumbersKey {
    Units amount;
    Period period;
    std::string timezone;
    bool operator==(const NumbersKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const NumbersKey& key) {  // NOLINT(readability-identifier-naming): absl's name
      return H::combine(std::move(h), key.amount, static_cast<int>(key.period), key.timezone);
    }
  };
  mutable std::shared_mutex numbers_mutex_;
  absl::flat_hash_map<NumbersKey, Numbers> numbers_;

  mutable std::mutex mutex_;  // guards all below
  quota::RunQueue queue_;
  absl::flat_hash_map<std::string, AskingPtr> waiting_;  // by run
  absl::flat_hash_map<std::string, std::string> held_;   // leases, by run
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;  // starts those whose turn it is
};

}  // namespace headgate::service

// The ledger without its database: the queue, the thread that writes, retries, retention.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "quota/ledger.h"
#include "quota/ledger_backend.h"

namespace headgate::quota {

// Says up to when rows are too old, and distrusts a wall clock that has leapt ahead of the steady one.
class Retention {
 public:
  using Steady = std::chrono::steady_clock::time_point;
  static constexpr Nanos kLeap{std::chrono::minutes{5}};  // further than any clock is slewed between two looks
  static constexpr Nanos kHold{std::chrono::hours{1}};
  static constexpr Nanos kLeastUsage{std::chrono::hours{24 * 32}};

  Retention(Nanos keep, Nanos wall, Steady now) noexcept : keep_(keep), wall_(wall), seen_(now), hold_until_(now) {}
  // nullopt: nothing may go now.
  [[nodiscard]] std::optional<LedgerBackend::Expiry> expiry(Nanos wall, Steady now) noexcept;

 private:
  const Nanos keep_;
  Nanos wall_;
  Steady seen_;
  Steady hold_until_;
};

class LedgerWriter final : public Ledger {
 public:
  LedgerWriter(std::unique_ptr<LedgerBackend> backend, LedgerOptions options);
  ~LedgerWriter() override;

  void add(Entry entry, Done done) override;
  Result<std::vector<Execution>> executions(const ExecutionQuery& query) override;
  Result<std::vector<UsageRow>> usage(const UsageQuery& query) override;
  Result<void> flush() override;
  LedgerFacts facts() const override;

 private:
  using Steady = std::chrono::steady_clock;
  struct Pending {
    Entry entry;
    Done done;
    Steady::time_point added;
  };

  // `told_later`: whether `done` has been kept, to be told once it is written.
  [[nodiscard]] Result<void> enqueue(Pending pending, const Done& done, bool& told_later);
  [[nodiscard]] bool answers_late(Steady::time_point now) const;  // the lock is held
  [[nodiscard]] Steady::time_point oldest_pending() const;        // the lock is held, and something is pending
  void run();
  // Until there is something to write, to retry or to prune, or the ledger ends. Takes what has come.
  void await_work(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Steady::time_point next_work() const;
  [[nodiscard]] bool write_due(Steady::time_point now) const;
  [[nodiscard]] bool retry_due(Steady::time_point now) const;
  [[nodiscard]] bool prune_due(Steady::time_point now) const;  // not while writes fail
  void write_some();
  [[nodiscard]] std::optional<LedgerBackend::Failure> try_writing();
  void succeeded(std::size_t count);
  void failed(const Error& error);
  // Takes entries off the backlog, and tells those who wait for them.
  void settle(std::size_t count, const Result<void>& result);
  void give_up_on_late(const Error& error);
  void prune_a_step();
  [[nodiscard]] Nanos wall() const;

  const LedgerOptions options_;
  const std::unique_ptr<LedgerBackend> backend_;

  // The thread's own.
  std::deque<Pending> backlog_;
  std::uint64_t number_ = 0;   // of the last batch
  std::size_t unknown_ = 0;    // so many entries at the head of backlog_ may have been written as batch number_
  std::size_t attempted_ = 0;  // so many at its head were in the last attempt
  Steady::time_point retry_at_{};
  Nanos back_off_{0};  // 0: the last write worked
  Steady::time_point prune_at_;
  Retention retention_;

  mutable std::mutex mutex_;      // guards what follows
  std::condition_variable work_;  // for the thread
  std::condition_variable idle_;  // for flush()
  std::deque<Pending> incoming_;
  Steady::time_point oldest_{};  // of those in backlog_; only if there are any
  std::uint64_t added_ = 0;      // entries, ever
  std::uint64_t settled_ = 0;    // of those: written or given up
  std::uint64_t wanted_ = 0;     // flush() waits until so many are settled
  bool ending_ = false;
  Steady::time_point end_by_{};
  LedgerFacts facts_;

  std::thread thread_;
};

}  // namespace headgate::quota

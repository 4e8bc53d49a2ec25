#include "quota/ledger_writer.h"

#include <absl/container/flat_hash_map.h>
#include <absl/hash/hash.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "quota/ledger_entry.h"

namespace headgate::quota {
namespace {

using namespace std::chrono_literals;

// kAsync: so many are not kept waiting for the interval to end.
constexpr std::size_t kEnough = 5'000;
// In one commit, at most. When the ledger is behind, bigger commits are what lets it catch up: a page of an index is
// written once a commit, however many of its rows are new.
constexpr std::size_t kMostAtOnce = 50'000;
// kAsync: when the oldest entry has waited for so many intervals, further ones are answered as with kSync. So a crash
// takes no more than that, and those who ask leave time to the one who writes.
constexpr int kMostIntervals = 3;
constexpr int kAsyncNice = 19;
constexpr Nanos kFirstRetry = 20ms;
constexpr Nanos kSlowestRetry = 1s;
// A step of pruning takes a few milliseconds; writers come between any two.
constexpr std::size_t kRowsAStep = 500;
constexpr Nanos kBetweenSteps = 50ms;
constexpr Nanos kAfterFailedStep = 5s;

struct KeyHash {
  std::size_t operator()(const UsageKey* key) const noexcept {
    return absl::HashOf(key->user, key->type, key->session, key->day.count());
  }
};
struct KeyEqual {
  bool operator()(const UsageKey* a, const UsageKey* b) const noexcept { return *a == *b; }
};

// Charges of one key become one row, so that a busy user costs one update a commit.
class BatchMaker {
 public:
  void add(const Ledger::Entry& entry) {
    if (const auto* charge = std::get_if<Ledger::Charge>(&entry)) {
      sums_[&charge->key] += charge->usage;
      return;
    }
    const auto& run = std::get<Ledger::Run>(entry);
    batch_.executions.push_back(&run.execution);
    sums_[&run.key] += usage_of(run.execution);
  }
  LedgerBatch finish(std::uint64_t number) {
    batch_.number = number;
    // A user's rows go to the same pages of the indexes, so that together they cost half as much.
    std::stable_sort(batch_.executions.begin(), batch_.executions.end(),
                     [](const Execution* a, const Execution* b) { return a->user < b->user; });
    // In order, so that two servers never wait for each other's rows crosswise.
    batch_.usage.assign(sums_.begin(), sums_.end());
    std::sort(batch_.usage.begin(), batch_.usage.end(),
              [](const auto& a, const auto& b) { return *a.first < *b.first; });
    return std::move(batch_);
  }

 private:
  LedgerBatch batch_;
  absl::flat_hash_map<const UsageKey*, Usage, KeyHash, KeyEqual> sums_;
};

}  // namespace

std::optional<LedgerBackend::Expiry> Retention::expiry(Nanos wall, Steady now) noexcept {
  const Nanos passed = now - seen_;
  if (wall - wall_ > passed + kLeap) hold_until_ = now + kHold;
  wall_ = wall;
  seen_ = now;
  if (now < hold_until_) return std::nullopt;
  LedgerBackend::Expiry expiry;
  expiry.executions = std::max(Nanos{0}, wall - keep_);
  expiry.usage = std::max(Nanos{0}, wall - std::max(keep_, kLeastUsage));
  return expiry;
}

LedgerWriter::LedgerWriter(std::unique_ptr<LedgerBackend> backend, LedgerOptions options)
    : options_(std::move(options)),
      backend_(std::move(backend)),
      prune_at_(Steady::now()),
      retention_(options_.retention, wall(), Steady::now()),
      thread_([this] { run(); }) {}

LedgerWriter::~LedgerWriter() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
    end_by_ = Steady::now() + options_.patience;
  }
  work_.notify_all();
  thread_.join();
}

Nanos LedgerWriter::wall() const {
  return options_.wall ? options_.wall() : Nanos{std::chrono::system_clock::now().time_since_epoch()};
}

void LedgerWriter::add(Entry entry, Done done) {
  Result<void> taken = make_fit(entry);
  bool told_later = false;
  if (taken) taken = enqueue({std::move(entry), {}, Steady::now()}, done, told_later);
  if (done && !(taken && told_later)) done(taken);
}

bool LedgerWriter::answers_late(Steady::time_point now) const {
  if (options_.durability == Durability::kSync) return true;
  // While the database is away, entries wait for it in memory, and no caller waits for them.
  if (added_ == settled_ || !facts_.problem.empty()) return false;
  return now - oldest_pending() > kMostIntervals * options_.interval;
}

LedgerWriter::Steady::time_point LedgerWriter::oldest_pending() const {
  const bool in_backlog = added_ - settled_ > incoming_.size();
  return in_backlog ? oldest_ : incoming_.front().added;
}

Result<void> LedgerWriter::enqueue(Pending pending, const Done& done, bool& told_later) {
  std::unique_lock lock(mutex_);
  if (added_ - settled_ >= options_.max_pending) {
    ++facts_.refused;
    return Error{ErrorCode::kIo,
                 fmt::format("the ledger is full: {} entries wait to be written{}{}", options_.max_pending,
                             facts_.problem.empty() ? "" : "; ", facts_.problem),
                 true};
  }
  told_later = answers_late(pending.added);
  if (told_later) pending.done = done;
  incoming_.push_back(std::move(pending));
  ++added_;
  const std::size_t waiting = incoming_.size();
  lock.unlock();
  if (waiting == 1 || waiting == kEnough) work_.notify_one();
  return {};
}

Result<std::vector<Execution>> LedgerWriter::executions(const ExecutionQuery& query) {
  return backend_->executions(query);
}

Result<std::vector<UsageRow>> LedgerWriter::usage(const UsageQuery& query) { return backend_->usage(query); }

Result<void> LedgerWriter::flush() {
  std::unique_lock lock(mutex_);
  const std::uint64_t target = added_;
  wanted_ = std::max(wanted_, target);
  work_.notify_one();
  // As long as writes work it waits for its turn; once they fail, no longer than a sync entry does.
  const auto give_up = Steady::now() + options_.patience;
  while (settled_ < target) {
    if (!facts_.problem.empty() && Steady::now() >= give_up) return Error{ErrorCode::kIo, facts_.problem, true};
    idle_.wait_for(lock, 50ms);
  }
  return {};
}

LedgerFacts LedgerWriter::facts() const {
  const std::lock_guard guard(mutex_);
  LedgerFacts facts = facts_;
  facts.pending = added_ - settled_;
  if (facts.pending > 0) facts.behind = Steady::now() - oldest_pending();
  return facts;
}

void LedgerWriter::run() {
  (void)::pthread_setname_np(::pthread_self(), "headgate-ledger");
  // No caller waits for it, unless it is far behind: threads that answer checks go first.
  if (options_.durability == Durability::kAsync) (void)::setpriority(PRIO_PROCESS, 0, kAsyncNice);
  std::unique_lock lock(mutex_);
  for (;;) {
    await_work(lock);
    const bool over = ending_ && (backlog_.empty() || (back_off_ > 0ns && Steady::now() >= end_by_));
    if (over) break;
    lock.unlock();
    if (retry_due(Steady::now())) write_some();
    if (prune_due(Steady::now())) prune_a_step();
    lock.lock();
  }
  const Error problem{ErrorCode::kIo, "the ledger ended before it could write: " + facts_.problem, true};
  lock.unlock();
  settle(backlog_.size(), problem);
}

LedgerWriter::Steady::time_point LedgerWriter::next_work() const {
  Steady::time_point next = back_off_ > 0ns || !backlog_.empty() ? retry_at_ : prune_at_;
  if (backlog_.empty() && !incoming_.empty()) {
    next = std::min(next, incoming_.front().added + options_.interval);
  }
  return ending_ && !backlog_.empty() ? std::min(next, end_by_) : next;
}

// Also with nothing to write, after a failure: only a write that works shows that the database is back.
bool LedgerWriter::retry_due(Steady::time_point now) const {
  return (!backlog_.empty() || back_off_ > 0ns) && now >= retry_at_;
}

bool LedgerWriter::prune_due(Steady::time_point now) const { return back_off_ == 0ns && now >= prune_at_; }

bool LedgerWriter::write_due(Steady::time_point now) const {
  if (incoming_.empty()) return false;
  const bool waited_for = static_cast<bool>(incoming_.back().done);
  return waited_for || options_.durability == Durability::kSync || ending_ || incoming_.size() >= kEnough ||
         wanted_ > settled_ || now >= incoming_.front().added + options_.interval;
}

void LedgerWriter::await_work(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    const auto now = Steady::now();
    const bool end = ending_ && (incoming_.empty() || now >= end_by_) && (backlog_.empty() || now >= end_by_);
    const bool fresh = backlog_.empty() && write_due(now);
    if (retry_due(now) || end || fresh || prune_due(now)) break;
    work_.wait_until(lock, next_work());
  }
  if (!incoming_.empty() && (write_due(Steady::now()) || !backlog_.empty() || ending_)) {
    std::deque<Pending> came;
    came.swap(incoming_);
    if (backlog_.empty()) {
      oldest_ = came.front().added;
      backlog_.swap(came);
    } else {
      lock.unlock();
      backlog_.insert(backlog_.end(), std::make_move_iterator(came.begin()), std::make_move_iterator(came.end()));
      lock.lock();
    }
  }
}

void LedgerWriter::write_some() {
  auto failure = try_writing();
  if (!failure) return;
  if (failure->fate == LedgerBackend::Fate::kUnknown) unknown_ = attempted_;
  failed(failure->error);
  if (options_.durability == Durability::kSync) {
    give_up_on_late(failure->error);
  } else {
    for (Pending& pending : backlog_) {
      if (pending.done) std::exchange(pending.done, {})({});
    }
  }
}

std::optional<LedgerBackend::Failure> LedgerWriter::try_writing() {
  if (unknown_ > 0) {
    auto was = backend_->written(number_);
    if (!was) return LedgerBackend::Failure{std::move(was).error(), LedgerBackend::Fate::kNotWritten};
    const std::size_t known = std::exchange(unknown_, 0);
    if (*was) {
      succeeded(known);
      return std::nullopt;
    }
  }
  attempted_ = std::min(backlog_.size(), kMostAtOnce);
  BatchMaker maker;
  for (std::size_t i = 0; i < attempted_; ++i) maker.add(backlog_[i].entry);
  auto failure = backend_->write(maker.finish(++number_));
  if (!failure) succeeded(attempted_);
  return failure;
}

void LedgerWriter::succeeded(std::size_t count) {
  const bool recovered = back_off_ > 0ns;
  back_off_ = 0ns;
  retry_at_ = {};
  {
    const std::lock_guard guard(mutex_);
    facts_.written += count;
    ++facts_.commits;
    facts_.problem.clear();
  }
  if (recovered && options_.on_trouble) options_.on_trouble(nullptr);
  settle(count, {});
}

void LedgerWriter::failed(const Error& error) {
  const bool first = back_off_ == 0ns;
  back_off_ = first ? kFirstRetry : std::min(back_off_ * 2, kSlowestRetry);
  retry_at_ = Steady::now() + back_off_;
  {
    const std::lock_guard guard(mutex_);
    facts_.problem = error.message;
  }
  if (first && options_.on_trouble) options_.on_trouble(&error);
}

void LedgerWriter::give_up_on_late(const Error& error) {
  // All have the same patience, so the late ones are the first.
  const auto late = Steady::now() - options_.patience;
  const auto first_in_time =
      std::find_if(backlog_.begin(), backlog_.end(), [&](const Pending& pending) { return pending.added > late; });
  const auto count = static_cast<std::size_t>(first_in_time - backlog_.begin());
  if (count > 0) settle(count, error);
  // The next to run out of patience must hear of it in time.
  if (!backlog_.empty()) retry_at_ = std::min(retry_at_, backlog_.front().added + options_.patience);
}

void LedgerWriter::settle(std::size_t count, const Result<void>& result) {
  // Entries are destroyed, and callers told, without the lock.
  std::vector<Done> to_tell;
  for (std::size_t i = 0; i < count; ++i) {
    if (backlog_[i].done) to_tell.push_back(std::move(backlog_[i].done));
  }
  backlog_.erase(backlog_.begin(), backlog_.begin() + static_cast<std::ptrdiff_t>(count));
  unknown_ -= std::min(unknown_, count);
  {
    const std::lock_guard guard(mutex_);
    settled_ += count;
    if (!result) facts_.failed += count;
    if (!backlog_.empty()) oldest_ = backlog_.front().added;
  }
  idle_.notify_all();
  for (const Done& done : to_tell) done(result);
}

void LedgerWriter::prune_a_step() {
  const auto now = Steady::now();
  auto expiry = retention_.expiry(wall(), now);
  if (!expiry) {
    prune_at_ = now + options_.prune_every;
    return;
  }
  expiry->rows = kRowsAStep;
  const auto gone = backend_->prune(*expiry);
  if (!gone) {
    prune_at_ = Steady::now() + kAfterFailedStep;
    return;
  }
  prune_at_ = Steady::now() + (*gone < kRowsAStep ? options_.prune_every : kBetweenSteps);
  const std::lock_guard guard(mutex_);
  facts_.pruned += *gone;
}

}  // namespace headgate::quota

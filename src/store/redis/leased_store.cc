#include "store/redis/leased_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstring>
#include <mutex>
#include <utility>

#include "store/verdict.h"

namespace headgate::store::redis {
namespace {

// Limits as they were when last looked at, shared by all cells they apply to: a policy may be gone by the time that a
// block goes back.
class LimitCopies {
 public:
  [[nodiscard]] BlockTable::Limit of(const LiveLimit& live) {
    const std::lock_guard guard(mutex_);
    if (copies_.size() >= kMost) copies_.clear();
    BlockTable::Limit& copy = copies_[&live];
    if (copy == nullptr || copy->generation() != live.generation() || !same(copy->current(), live.current())) {
      // With what it was before, as far as it is remembered: cells may have been written by that.
      copy = std::make_shared<LiveLimit>(live);
    }
    return copy;
  }

 private:
  static constexpr std::size_t kMost = 65'536;  // then they are made anew
  // To the bit. Where equal ones differ in bits that do not count, there is a copy more.
  static bool same(const core::CompiledLimit& a, const core::CompiledLimit& b) noexcept {
    using Bytes = std::array<char, sizeof(core::CompiledLimit)>;
    Bytes x;
    Bytes y;
    std::memcpy(x.data(), &a, sizeof(a));
    std::memcpy(y.data(), &b, sizeof(b));
    return x == y;
  }

  std::mutex mutex_;
  absl::flat_hash_map<const LiveLimit*, BlockTable::Limit> copies_;
};

// A block that is about to run low at an even pace lasts for longer than the next call of maintain(), so its errand
// waits for that, or for so many others: messages that go together cost a fraction of those that go one by one.
constexpr std::size_t kTogether = 32;

// Three quarters of a block lasted for four rounds, so a quarter lasts for more than one.
constexpr std::size_t kRoundsOfAnEvenPace = 4;

// Whether a check may be answered from leased units.
bool is_leased(std::span<const Charge> charges, const Ask& ask) noexcept {
  return ask.effect == Effect::kCharge &&
         std::ranges::all_of(charges, [](const Charge& charge) { return charge.leased; });
}

// A cell of which more is to be fetched.
struct Low {
  base::Hash128 cell;
  BlockTable::Limit limit;
  LeaseTerms terms;
};

}  // namespace

struct LeasedStore::Shared : std::enable_shared_from_this<Shared> {
  Shared(RemoteStore& s, Caller& c, Options o)
      : store(s),
        caller(c),
        options(std::move(o)),
        table(options.max_cells, options.settings.ttl * kRoundsOfAnEvenPace / kRounds) {}

  RemoteStore& store;
  Caller& caller;
  const Options options;
  BlockTable table;
  LimitCopies copies;
  std::atomic<std::uint64_t> number{0};
  std::atomic<std::size_t> errands{0};
  std::atomic<std::uint64_t> blocks{0};
  std::atomic<Units> fetched{0};
  std::atomic<Units> given_back{0};
  std::atomic<std::uint64_t> strict{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::int64_t> store_ahead{0};  // the store's clock is ahead of ours by this much, or a little more
  std::atomic<bool> closed{false};
  std::mutex mutex;                     // guards on_closed and low
  std::function<void()> on_closed;      //
  std::vector<Low> low;                 // errands that have yet to start
  std::vector<BlockTable::Errand> due;  // of maintain(), kept for its memory

  // One errand under way; its charge must stay where it is until the store has answered.
  struct Trip {
    BlockTable::Errand errand;
    Nanos sent_at{0};
    Units granted = 0;
    Charge charge;
    core::Outcome outcome;
  };
  using TripPtr = std::shared_ptr<Trip>;

  [[nodiscard]] Nanos now() const noexcept { return options.clock->now(); }
  [[nodiscard]] bool may_start() const noexcept { return !closed && errands < options.max_errands; }

  [[nodiscard]] LeaseTerms terms_of(const Charge& charge) const noexcept {
    return lease_terms(charge.limit->current(), options.settings);
  }
  // Of a check that was asked elsewhere; without outcomes: it was not answered, but there is a demand all the same.
  void learn(std::span<const Charge> charges, const core::Outcome* outcomes);
  [[nodiscard]] Low low_of(const Charge& charge) { return {charge.key, copies.of(*charge.limit), terms_of(charge)}; }
  [[nodiscard]] std::vector<Low> take_low();
  void start_low(std::vector<Low> cells, Nanos at);
  void start(BlockTable::Errand errand);
  void hold(const TripPtr& trip, Units want, void (Shared::*then)(const TripPtr&, const Result<Reply>&));
  void on_held(const TripPtr& trip, const Result<Reply>& reply);
  void charge(const TripPtr& trip, Units units, bool again);
  void on_charged(const TripPtr& trip, const Result<RemoteStore::Answer>& answer, bool again);
  void on_corrected(const TripPtr& trip, const Result<Reply>& reply);
  [[nodiscard]] Nanos refunded_as_of(const Charge& charge, Nanos charged_at) const noexcept;
  void give_back(const BlockTable::Errand& errand, const std::array<BlockTable::Errand::Back, 2>& back);
  void end(const Trip& trip, Nanos pause);
  void close_if_done();
};

LeasedStore::LeasedStore(RemoteStore& store, Caller& caller, Options options)
    : shared_(std::make_shared<Shared>(store, caller, std::move(options))), table_(shared_->table) {
  assert(shared_->options.clock != nullptr);
}
LeasedStore::~LeasedStore() { shared_->closed = true; }

void LeasedStore::fetch_ahead(std::span<const Charge> charges, const BlockTable::Taken& taken, Nanos now) {
  std::vector<Low> together;
  {
    const std::lock_guard guard(shared_->mutex);
    for (std::uint64_t low = taken.low; low != 0; low &= low - 1) {
      shared_->low.push_back(shared_->low_of(charges[static_cast<std::size_t>(std::countr_zero(low))]));
    }
    if (!taken.hurry && shared_->low.size() < kTogether && !shared_->closed) return;
    together.swap(shared_->low);
  }
  shared_->start_low(std::move(together), now);
}

std::optional<Applied> LeasedStore::try_now(std::span<const Charge> charges, const Ask& ask,
                                            std::span<core::Outcome> outcomes) {
  if (!is_leased(charges, ask)) return std::nullopt;
  const BlockTable::Taken taken = table_.take(charges, ask.now, outcomes);
  if (taken.low != 0) fetch_ahead(charges, taken, ask.now);
  if (taken.verdict == BlockTable::Verdict::kAsk) return std::nullopt;
  ChargeVerdict verdict(ask.effect, ask.patience);
  if (taken.verdict == BlockTable::Verdict::kDenied) {
    for (std::size_t i = 0; i < charges.size(); ++i) verdict.add(charges[i], outcomes[i]);
  }
  return verdict.applied(true);
}

void LeasedStore::apply(std::span<const Charge> charges, const Ask& ask, std::span<core::Outcome> outcomes, Done done) {
  if (!is_leased(charges, ask)) return shared_->store.apply(charges, ask, outcomes, std::move(done));
  ++shared_->strict;
  shared_->store.apply(
      charges, ask, outcomes,
      [shared = shared_, charges, outcomes, done = std::move(done)](const Result<RemoteStore::Answer>& answer) {
        if (!shared->closed) shared->learn(charges, answer.has_value() ? outcomes.data() : nullptr);
        done(answer);  // the last: what was lent for this call may be gone afterwards
      });
}

void LeasedStore::refund(const Charge& charge, Nanos charged_at, Told told) {
  shared_->store.refund(charge, charged_at, std::move(told));
}
void LeasedStore::release(const Charge& charge, LeaseId lease, Told told) {
  shared_->store.release(charge, lease, std::move(told));
}
void LeasedStore::renew(const Charge& charge, LeaseId lease, Told told) {
  shared_->store.renew(charge, lease, std::move(told));
}
Nanos LeasedStore::now_approx() const noexcept { return shared_->store.now_approx(); }

void LeasedStore::maintain() {
  shared_->start_low(shared_->take_low(), shared_->now());
  if (!shared_->may_start()) return;
  shared_->due.clear();
  const std::size_t most =
      shared_->options.max_errands - std::min(shared_->options.max_errands, shared_->errands.load());
  shared_->table.due(shared_->now(), kRounds / 4, most, shared_->due);
  for (BlockTable::Errand& errand : shared_->due) shared_->start(std::move(errand));
}

void LeasedStore::close(std::function<void()> done) {
  {
    const std::lock_guard guard(shared_->mutex);
    shared_->on_closed = std::move(done);
  }
  ++shared_->errands;  // this one, so that none of the others is the last before all have begun
  shared_->closed = true;
  shared_->start_low(shared_->take_low(), shared_->now());
  std::vector<BlockTable::Errand> errands;
  shared_->table.empty(errands);
  for (BlockTable::Errand& errand : errands) shared_->start(std::move(errand));
  --shared_->errands;
  shared_->close_if_done();
}

LeasedStore::Totals LeasedStore::totals() const noexcept {
  const BlockTable::Totals held = shared_->table.totals(shared_->now());
  return {held.cells,       held.units,          held.lapsed,     shared_->blocks,
          shared_->fetched, shared_->given_back, shared_->strict, shared_->failed};
}

void LeasedStore::Shared::learn(std::span<const Charge> charges, const core::Outcome* outcomes) {
  const Nanos at = now();
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const LeaseTerms terms = terms_of(charges[i]);
    if (!table.heard(charges[i], terms, outcomes != nullptr ? outcomes + i : nullptr, at)) continue;
    start_low({low_of(charges[i])}, at);
  }
}

std::vector<Low> LeasedStore::Shared::take_low() {
  const std::lock_guard guard(mutex);
  return std::exchange(low, {});
}

void LeasedStore::Shared::start_low(std::vector<Low> cells, Nanos at) {
  for (Low& each : cells) {
    if (may_start() && each.terms.leased()) {
      start(table.begin(each.cell, std::move(each.limit), each.terms, at));
    } else {
      table.end(each.cell, at + pause_after_refusal(each.terms));
    }
  }
}

void LeasedStore::Shared::start(BlockTable::Errand errand) {
  ++errands;
  give_back(errand, errand.back);
  auto trip = std::make_shared<Trip>();
  trip->errand = std::move(errand);
  hold(trip, closed ? 0 : trip->errand.want, &Shared::on_held);
}

void LeasedStore::Shared::hold(const TripPtr& trip, Units want,
                               void (Shared::*then)(const TripPtr&, const Result<Reply>&)) {
  Hold message;
  message.cell = trip->errand.cell;
  message.number = ++number;
  message.left = trip->errand.left;
  message.want = want;
  message.least = std::min(want, trip->errand.least);
  message.cap = trip->errand.terms.cap;
  message.ttl = trip->errand.terms.ttl;
  trip->sent_at = now();  // before it is sent, so that the lease ends here before it does there
  caller.call(hold_command(options.prefix, options.node, message),
              [self = shared_from_this(), trip, then](const Result<Reply>& reply) { (*self.*then)(trip, reply); });
}

void LeasedStore::Shared::on_held(const TripPtr& trip, const Result<Reply>& reply) {
  const BlockTable::Errand& errand = trip->errand;
  const std::optional<Held> held = reply.has_value() ? read_held(*reply) : std::nullopt;
  if (!held.has_value()) {
    ++failed;
    end(*trip, pause_after_trouble(errand.terms));
    return;
  }
  give_back(errand, table.renew(errand.cell, held->units, trip->sent_at + errand.terms.ttl));
  trip->granted = std::max<Units>(held->units - errand.left, 0);
  if (trip->granted == 0) {
    end(*trip, errand.want > 0 ? pause_after_refusal(errand.terms) : Nanos{0});
    return;
  }
  charge(trip, trip->granted, false);
}

void LeasedStore::Shared::charge(const TripPtr& trip, Units units, bool again) {
  trip->charge = {};
  trip->charge.key = trip->errand.cell;
  trip->charge.limit = trip->errand.limit.get();
  trip->charge.cost = units;
  trip->charge.counted = false;
  Ask ask;
  ask.count_denial = false;
  ask.ahead = true;
  store.apply({&trip->charge, 1}, ask, {&trip->outcome, 1},
              [self = shared_from_this(), trip, again](const auto& answer) { self->on_charged(trip, answer, again); });
}

void LeasedStore::Shared::on_charged(const TripPtr& trip, const Result<RemoteStore::Answer>& answer, bool again) {
  const BlockTable::Errand& errand = trip->errand;
  const Units units = trip->charge.cost;
  if (!answer.has_value()) {
    ++failed;  // it may have been charged: then it lapses unused
    end(*trip, pause_after_trouble(errand.terms));
    return;
  }
  store_ahead = (answer->at - now()).count();
  if (answer->applied.wait == Nanos{0} && !answer->applied.store_full) {
    ++blocks;
    fetched += units;
    table.put(errand.cell, units, answer->at, trip->outcome, now());
    end(*trip, units < errand.least ? pause_after_trouble(errand.terms) : Nanos{0});
    return;
  }
  // Not so many, but perhaps some. Others may be quicker, so this is tried once.
  const Units rest = std::min(trip->outcome.remaining, units - 1);
  if (!again && rest > 0) {
    charge(trip, rest, true);
    return;
  }
  hold(trip, 0, &Shared::on_corrected);
}

void LeasedStore::Shared::on_corrected(const TripPtr& trip, const Result<Reply>&) {
  end(*trip, pause_after_trouble(trip->errand.terms));
}

// A bucket that is told when it was charged gives back less for every moment since, as if it had been full meanwhile. A
// block counts as held for all that time (see lease_step.h), so all of it goes back, as if charged just now.
Nanos LeasedStore::Shared::refunded_as_of(const Charge& charge, Nanos charged_at) const noexcept {
  const Strategy strategy = charge.limit->strategy();
  if (strategy != Strategy::kTokenBucket && strategy != Strategy::kGcra) return charged_at;
  return std::max(charged_at, now() + Nanos{store_ahead.load()});
}

void LeasedStore::Shared::give_back(const BlockTable::Errand& errand,
                                    const std::array<BlockTable::Errand::Back, 2>& back) {
  for (const BlockTable::Errand::Back& part : back) {
    if (part.units == 0 || errand.limit == nullptr) continue;
    Charge charge;
    charge.key = errand.cell;
    charge.limit = errand.limit.get();
    charge.cost = part.units;
    charge.counted = false;
    given_back += part.units;
    ++errands;
    store.refund(charge, refunded_as_of(charge, part.charged_at),
                 [self = shared_from_this()](const Result<bool>& told) {
                   if (!told.has_value()) ++self->failed;
                   --self->errands;
                   if (self->closed) self->close_if_done();
                 });
  }
}

void LeasedStore::Shared::end(const Trip& trip, Nanos pause) {
  table.end(trip.errand.cell, now() + pause);
  if (closed) {
    // It began before all were told to go back, and may have brought something.
    if (std::optional<BlockTable::Errand> rest = table.empty(trip.errand.cell)) start(std::move(*rest));
  }
  --errands;
  if (closed) close_if_done();
}

void LeasedStore::Shared::close_if_done() {
  std::function<void()> tell;
  {
    const std::lock_guard guard(mutex);
    if (errands == 0) tell = std::exchange(on_closed, nullptr);
  }
  if (tell) tell();
}

}  // namespace headgate::store::redis

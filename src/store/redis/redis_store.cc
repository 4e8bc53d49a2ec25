#include "store/redis/redis_store.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "store/redis/cell_codec.h"
#include "store/redis/charge_script.h"
#include "store/redis/core.h"
#include "store/redis/wall_clock.h"
#include "store/verdict.h"

namespace headgate::store::redis {
namespace {

using core::Outcome;

constexpr std::size_t kMaxForeign = 4096;
// A cell may be stale, then another, then the period over; more often than this in one call is a fault.
constexpr int kMaxAttempts = 12;

Error torn_answer() {
  return {ErrorCode::kCorrupt, "redis: the script gave an answer that is none of ours: is another program using it?"};
}

// The names of the notes about these cells, after them.
void add_notes(std::vector<std::string>& keys) {
  const std::size_t cells = keys.size();
  keys.reserve(2 * cells);
  for (std::size_t i = 0; i < cells; ++i) keys.push_back(keys[i] + ":p");
}

}  // namespace

// What every call of a script has in common: it is made again when a cell was written by other numbers, after that was
// dealt with.
class RedisStore::Call {
 public:
  struct When {
    Nanos asked;  // by steady_now()
    Nanos now;    // 0: by the clock of Redis
    bool ahead = false;
    std::string_view owner{};
  };
  Call(RedisStore& store, std::span<const Charge> charges, const When& when)
      : store_(store), charges_(charges), when_(when) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  // Deletes itself once it has answered.
  void start() {
    for (std::size_t i = 0; i < charges_.size(); ++i) {
      coded_.push_back(code(charges_[i], charges_[i].limit->current()));
      keys_.push_back(store_.key_of(charges_[i].key));
      if (const auto can = countable(coded_[i].limit); !can) return end(can.error());
    }
    if (store_.options_.cluster && &script() == &charge_script()) add_notes(keys_);
    ask();
  }

 protected:
  virtual void append_blob(std::string& blob) = 0;
  [[nodiscard]] virtual const Script& script() const = 0;
  virtual void answer(const ScriptAnswer& answer) = 0;
  virtual void fail(const Error& error) = 0;
  // Called with an answer that comes after fail(). May be empty.
  [[nodiscard]] virtual Caller::Done if_late() { return {}; }

  [[nodiscard]] std::vector<CodedCharge>& coded() noexcept { return coded_; }
  [[nodiscard]] std::span<const Charge> charges() const noexcept { return charges_; }
  [[nodiscard]] const Charge& charge(std::size_t i) const noexcept { return charges_[i]; }
  [[nodiscard]] RedisStore& store() noexcept { return store_; }

 private:
  [[nodiscard]] CodedCharge code(const Charge& charge, const core::CompiledLimit& limit) const {
    CodedCharge coded;
    coded.limit = as_counted(limit);
    coded.shape = shape_of(coded.limit);
    coded.also = store_.foreign_shape(coded.shape);
    coded.never = charge.cost > coded.limit.most;
    coded.cost = coded.never ? 0 : charge.cost;
    coded.soft = charge.soft;
    coded.patience = charge.patience;
    return coded;
  }

  void end(const Error& error) {
    const bool fault = error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kInvalidArgument;
    if (fault && store_.options_.on_fault) store_.options_.on_fault(error);
    fail(error);
    delete this;
  }

  void ask() {
    if (++attempts_ > kMaxAttempts) {
      return end({ErrorCode::kTimedOut, "redis: a cell was changed by somebody else each time we looked", true});
    }
    std::string blob;
    append_blob(blob);
    sent_at_ = wall_now();
    if (&script() != &charge_script()) {
      return call(script(), blob, [this](const Result<Reply>& reply) { (void)on_reply(reply); });
    }
    auto heard = [this](const Result<Reply>& reply) { return on_reply(reply); };
    const std::uint16_t slot = store_.options_.cluster ? slot_of(keys_[0]) : kAnySlot;
    store_.queue_.ask(
        {keys_, std::move(blob), when_.asked, when_.ahead, std::string(when_.owner), std::move(heard), slot});
  }

  void call(const Script& script, std::string_view blob, Caller::Done done) {
    Command command = store_.command_of(script, keys_, blob);
    command.asked = when_.asked;
    store_.caller_.call(std::move(command), std::move(done));
  }

  // A charge list that was lost before it was settled has charged one of these cells: undoes that, then goes on.
  void settle() {
    std::string blob;
    append_settling(Settling::kLapsed, when_.now, 0, blob);
    call(settle_script(), blob, [this](const Result<Reply>& reply) {
      if (!reply) return end(reply.error());
      ask();
    });
  }

  // Returns what if_late() says, where that is to be asked.
  [[nodiscard]] Caller::Done on_reply(const Result<Reply>& reply) {
    if (!reply) {
      Caller::Done late = if_late();  // before the charges are gone
      end(reply.error());
      return late;
    }
    std::string longer;
    const auto read = reply->is_text() ? read_answer(reply->text(), longer) : std::nullopt;
    if (!read || read->index >= charges_.size()) {
      end(torn_answer());
    } else {
      if (when_.now == Nanos{0}) store_.heard(read->now, sent_at_);
      go_on(*read);
    }
    return {};
  }

  void go_on(const ScriptAnswer& read) {
    switch (read.status) {
      case ScriptAnswer::Status::kAdmitted:
      case ScriptAnswer::Status::kDenied: {
        std::size_t told = 0;
        for (const CodedCharge& coded : coded_) told += told_of(coded.limit.strategy);
        const bool is_list = &script() == &charge_script();
        if (read.cells.size() != (is_list ? told : 0)) return end(torn_answer());
        answer(read);
        delete this;
        return;
      }
      case ScriptAnswer::Status::kStale: return fetch(read.index, read.now);
      case ScriptAnswer::Status::kOtherPeriod: {
        const core::Calendar& calendar = coded_[read.index].limit.numbers.window.calendar;
        coded_[read.index].period = calendar.period_at(read.now);
        coded_[read.index].another = calendar.period_at(read.instant);
        return ask();
      }
      case ScriptAnswer::Status::kForeign: return end(foreign(read.index));
      case ScriptAnswer::Status::kLapsed: return settle();
      case ScriptAnswer::Status::kTooLate: return ask();  // its clock was taken for another: now it is known
    }
  }

  [[nodiscard]] Error foreign(std::size_t i) const {
    return {ErrorCode::kCorrupt, "redis: what lies under \"" + keys_[i] + "\" is not a cell of a " +
                                     to_string(coded_[i].limit.strategy) +
                                     " limit: does another program use this prefix?"};
  }

  // Reads a cell that was written by other numbers than those of its limit now.
  void fetch(std::size_t i, Nanos now) {
    Command command;
    append_words(std::array<std::string_view, 2>{"GET", keys_[i]}, command.wire);
    command.slot = store_.options_.cluster ? slot_of(keys_[i]) : kAnySlot;
    command.asked = when_.asked;
    store_.caller_.call(std::move(command), [this, i, now](const Result<Reply>& reply) {
      if (!reply) return end(reply.error());
      if (reply->is_nil()) return ask();
      if (!reply->is_text()) return end(torn_answer());
      bring_up_to_date(i, reply->text(), now);
    });
  }

  void bring_up_to_date(std::size_t i, std::string_view raw, Nanos now) {
    const LiveLimit live(*charges_[i].limit);
    const auto shape = shape_in(live.strategy(), raw);
    if (!shape) return end(foreign(i));
    const std::uint32_t to = live.generation();
    for (std::uint32_t from = to; live.remembers(from); --from) {
      if (shape_of(as_counted(live.entry(from).limit)) != *shape) {
        if (from == 0) break;
        continue;
      }
      coded_[i] = code(charges_[i], live.current());
      if (from == to) return ask();  // another server was quicker
      const auto carried = carry_cell(live, from, to, raw, now);
      if (!carried) return end(foreign(i));
      return replace(i, raw, *carried);
    }
    // Written by numbers that are not known here: by a server that has newer ones, or by one that had others before it
    // was started anew. It is taken as it stands, and stays theirs: they know what their numbers were.
    coded_[i].also = *shape;
    store_.remember_foreign(coded_[i].shape, *shape);
    ask();
  }

  void replace(std::size_t i, std::string_view raw, const Carried& carried) {
    Command command;
    const std::string keep = std::to_string(carried.keep_ms);
    const Script& replacing = replace_script();
    append_call(replacing, std::array{std::string_view(keys_[i])},
                std::array<std::string_view, 3>{raw, carried.raw, keep}, command.wire);
    command.slot = store_.options_.cluster ? slot_of(keys_[i]) : kAnySlot;
    command.script = &replacing;
    command.asked = when_.asked;
    store_.caller_.call(std::move(command), [this](const Result<Reply>& reply) {
      if (!reply) return end(reply.error());
      ask();  // if another server was quicker, its cell is found
    });
  }

  RedisStore& store_;
  std::span<const Charge> charges_;
  std::vector<CodedCharge> coded_;
  std::vector<std::string> keys_;  // of the cells; in a cluster, those of the notes about them follow
  const When when_;
  Nanos sent_at_{0};
  int attempts_ = 0;
};

// A charge list that was answered without Redis. Should it turn out to have been charged there, that comes back.
class RedisStore::LateCharges {
 public:
  LateCharges(RedisStore& store, const Terms& terms) : store_(store), terms_(terms) {}

  void add(const Charge& charge, const CodedCharge& coded) {
    limits_.push_back(*charge.limit);  // it may be gone before the answer comes
    charges_.push_back(charge);
    charges_.back().limit = &limits_.back();
    charges_.back().name = {};
    coded_.push_back(coded);
  }

  void take_back(const Result<Reply>& reply) const {
    std::string longer;
    const auto read = reply && reply->is_text() ? read_answer(reply->text(), longer) : std::nullopt;
    if (!read || read->status != ScriptAnswer::Status::kAdmitted) return;
    std::size_t told = 0;
    for (const CodedCharge& coded : coded_) {
      if (coded.never && !coded.soft) return;  // it was only looked at
      told += told_of(coded.limit.strategy);
    }
    if (read->cells.size() != told) return;
    std::string_view cells = read->cells;
    for (std::size_t i = 0; i < charges_.size(); ++i) {
      const CodedCharge& coded = coded_[i];
      const std::string_view cell = cells.substr(0, told_of(coded.limit.strategy));
      cells.remove_prefix(cell.size());
      const Outcome found = judge_told(coded, cell, read->now);
      if (coded.cost == 0 || (coded.soft && found.wait > Nanos{0})) continue;  // it was not charged
      Nanos charged_at = read->now + read->wait;
      if (coded.limit.strategy == Strategy::kLeakyBucket) {
        charged_at = std::max(charged_at, read->now + found.delay);  // its turn
      } else if (terms_.apart && found.wait == Nanos{0}) {
        charged_at = read->now;  // at once, whatever the others waited for
      }
      if (coded.limit.strategy == Strategy::kConcurrency) {
        store_.release(charges_[i], terms_.lease, {});
      } else {
        store_.refund(charges_[i], charged_at, {});
      }
    }
  }

 private:
  RedisStore& store_;
  const Terms terms_;
  std::deque<LiveLimit> limits_;
  std::vector<Charge> charges_;
  std::vector<CodedCharge> coded_;
};

class RedisStore::ChargeCall final : public Call {
 public:
  ChargeCall(RedisStore& store, const Terms& terms, std::span<const Charge> charges, std::span<Outcome> outcomes,
             Done done)
      : Call(store, charges, {terms.asked, terms.now, terms.ahead, terms.owner}),
        terms_(terms),
        outcomes_(outcomes),
        done_(std::move(done)) {}

 private:
  [[nodiscard]] const Script& script() const override { return charge_script(); }
  void fail(const Error& error) override {
    if (word_of(error.message) != "OOM") return done_(error);
    // The script has written nothing for any of the lists that were sent with it. A list that is denied needs no write:
    // where it is sent alone, it is still answered as ever.
    Answer full;
    full.at = store().redis_now_approx();
    for (std::size_t i = 0; i < coded().size(); ++i) {
      outcomes_[i] = {};
      outcomes_[i].limit = coded()[i].limit.most;
      full.applied.store_full = full.applied.store_full || !coded()[i].soft;
    }
    done_(full);
  }
  // What is noted is undone by whoever has noted it.
  [[nodiscard]] Caller::Done if_late() override {
    if (terms_.effect == Effect::kNone || terms_.note_as != 0) return {};
    auto late = std::make_shared<LateCharges>(store(), terms_);
    for (std::size_t i = 0; i < coded().size(); ++i) late->add(charge(i), coded()[i]);
    return [late](const Result<Reply>& reply) { late->take_back(reply); };
  }

  void append_blob(std::string& blob) override {
    Terms terms = terms_;
    for (CodedCharge& each : coded()) {
      // What can never fit keeps all the others from being charged, unless nothing is refused because of it.
      if (each.never && !each.soft) terms.effect = Effect::kNone;
      if (each.limit.strategy != Strategy::kQuota || each.period.end != Nanos{0}) continue;
      const core::Calendar& calendar = each.limit.numbers.window.calendar;
      each.period = calendar.period_at(terms.now == Nanos{0} ? store().redis_now_approx() : terms.now);
      each.another = calendar.period_at(each.period.end);
    }
    if (coded().size() == 1 && has_short_form(terms, coded()[0])) return append_short(terms, coded()[0], blob);
    append_terms(terms, coded().size(), blob);
    for (const CodedCharge& each : coded()) append_charge(each, blob);
    append_end(terms, blob);
  }

  // The outcomes are judged here, from the cells as the script found them.
  void answer(const ScriptAnswer& script) override {
    ChargeVerdict verdict(terms_.effect, terms_.patience);
    std::array<std::string_view, kMaxCharges> cells;
    std::string_view rest = script.cells;
    for (std::size_t i = 0; i < coded().size(); ++i) {
      cells[i] = rest.substr(0, told_of(coded()[i].limit.strategy));
      rest.remove_prefix(cells[i].size());
      outcomes_[i] = judge_told(coded()[i], cells[i], script.now);
      verdict.add(charge(i), outcomes_[i]);
    }
    const bool charged = script.status == ScriptAnswer::Status::kAdmitted && verdict.wait() != kNever;
    if (charged) verdict.set_wait(script.wait);  // rounded up to where it was charged
    verdict.add_turns(charges(), outcomes_,
                      [&](std::size_t i, Nanos wait) { return judge_told(coded()[i], cells[i], script.now + wait); });
    done_(Answer{verdict.applied(charged), script.now});
  }

  const Terms terms_;
  std::span<Outcome> outcomes_;
  Done done_;
};

class RedisStore::TellCall final : public Call {
 public:
  struct What {
    redis::Told told;
    Nanos now;
    LeaseId lease;
    Nanos charged_at;
  };
  TellCall(RedisStore& store, const Charge& charge, const What& what, RemoteStore::Told done)
      : Call(store, {&charge_, 1}, {steady_now(), what.now}),
        limit_(*charge.limit),  // it may be gone before the answer comes
        charge_(charge),
        what_(what),
        done_(std::move(done)) {
    charge_.limit = &limit_;
    charge_.name = {};
  }

 private:
  [[nodiscard]] const Script& script() const override { return tell_script(); }
  void append_blob(std::string& blob) override {
    append_told(what_.told, coded()[0], what_.now, what_.lease, what_.charged_at, blob);
  }
  void answer(const ScriptAnswer& script) override {
    if (done_) done_(script.status == ScriptAnswer::Status::kAdmitted);
  }
  void fail(const Error& error) override {
    if (done_) done_(error);
  }

  LiveLimit limit_;
  Charge charge_;
  const What what_;
  RemoteStore::Told done_;
};

RedisStore::RedisStore(Caller& caller, Options options)
    : caller_(caller),
      options_(std::move(options)),
      queue_(caller, [this](Nanos asked) { return deadline_of(asked); }) {
  std::random_device random;
  next_note_ = std::uint64_t{random()} << 32 | random();
}

std::string RedisStore::key_of(const base::Hash128& key) const { return cell_key(options_.prefix, key); }

void RedisStore::apply(std::span<const Charge> charges, const Ask& ask, std::span<Outcome> outcomes, Done done) {
  apply_at(Nanos{0}, charges, ask, outcomes, std::move(done));
}

void RedisStore::apply_slot(const Terms& terms, std::span<const Charge> charges, std::span<Outcome> outcomes,
                            Done done) {
  (new ChargeCall(*this, terms, charges, outcomes, std::move(done)))->start();
}

void RedisStore::apply_at(Nanos now, std::span<const Charge> charges, const Ask& ask, std::span<Outcome> outcomes,
                          Done done) {
  assert(!charges.empty() && charges.size() <= kMaxCharges);
  assert(std::ranges::all_of(charges, [](const Charge& charge) { return charge.cost >= 0; }));
  Terms terms{.effect = ask.effect, .now = now, .patience = ask.patience, .lease = ask.lease};
  terms.asked = steady_now();
  terms.ahead = ask.ahead;
  terms.owner = ask.owner;
  terms.apart = ask.apart;
  terms.slots = options_.cluster;
  bool one_slot = true;
  if (options_.cluster && charges.size() > 1) {
    const std::uint16_t slot = slot_of(key_of(charges[0].key));
    for (const Charge& charge : charges.subspan(1)) one_slot = one_slot && slot_of(key_of(charge.key)) == slot;
  }
  if (one_slot) return apply_slot(terms, charges, outcomes, std::move(done));
  // What never fits must not have the others charged first.
  Terms judged = terms;
  for (const Charge& charge : charges) {
    if (!charge.soft && charge.cost > charge.limit->current().most) judged.effect = Effect::kNone;
  }
  apply_split(judged, charges, outcomes, std::move(done));
}

Command RedisStore::command_of(const Script& script, std::span<const std::string> keys, std::string_view blob) const {
  Command command;
  command.wire.reserve(96 + 64 * keys.size() + blob.size());
  append_call(script, keys, std::array{blob}, command.wire);
  command.slot = options_.cluster ? slot_of(keys[0]) : kAnySlot;
  command.script = &script;
  return command;
}

void RedisStore::settle(Settling how, Nanos now, std::uint64_t noted_as, std::span<const Charge> charges) {
  std::vector<std::string> keys;
  for (const Charge& charge : charges) keys.push_back(key_of(charge.key));
  add_notes(keys);
  std::string blob;
  append_settling(how, now, noted_as, blob);
  // Where this is lost, the note lapses.
  caller_.call(command_of(settle_script(), keys, blob), [](const Result<Reply>&) {});
}

void RedisStore::tell(redis::Told told, Nanos now, const Charge& charge, LeaseId lease, Nanos charged_at,
                      RemoteStore::Told done) {
  // A hold is released, all else refunded; the other way round there is nothing to do.
  const bool held = charge.limit->strategy() == Strategy::kConcurrency;
  if (held == (told == redis::Told::kRefunded)) {
    if (done) done(false);
    return;
  }
  (new TellCall(*this, charge, {told, now, lease, charged_at}, std::move(done)))->start();
}

void RedisStore::refund(const Charge& charge, Nanos charged_at, RemoteStore::Told told) {
  refund_at(Nanos{0}, charge, charged_at, std::move(told));
}
void RedisStore::release(const Charge& charge, LeaseId lease, RemoteStore::Told told) {
  release_at(Nanos{0}, charge, lease, std::move(told));
}
void RedisStore::renew(const Charge& charge, LeaseId lease, RemoteStore::Told told) {
  renew_at(Nanos{0}, charge, lease, std::move(told));
}
void RedisStore::refund_at(Nanos now, const Charge& charge, Nanos charged_at, RemoteStore::Told told) {
  tell(redis::Told::kRefunded, now, charge, 0, charged_at, std::move(told));
}
void RedisStore::release_at(Nanos now, const Charge& charge, LeaseId lease, RemoteStore::Told told) {
  tell(redis::Told::kReleased, now, charge, lease, Nanos{0}, std::move(told));
}
void RedisStore::renew_at(Nanos now, const Charge& charge, LeaseId lease, RemoteStore::Told told) {
  tell(redis::Told::kRenewed, now, charge, lease, Nanos{0}, std::move(told));
}

Nanos RedisStore::redis_now_approx() const noexcept { return wall_now() + clock_offset(); }

Nanos RedisStore::deadline_of(Nanos asked) const noexcept {
  const Nanos deadline = caller_.deadline();
  if (deadline >= kMaxTime) return kMaxTime;
  return redis_now_approx() + (asked + deadline - steady_now());
}

void RedisStore::heard(Nanos redis_now, Nanos sent_at) noexcept {
  // Its clock was read somewhere between sending and hearing. An estimate that agrees with that stays: most often it
  // was made from a shorter round trip.
  const Nanos heard_at = wall_now();
  if (heard_at < sent_at) return;  // the clock here was set meanwhile
  const Nanos before = clock_offset();
  const Nanos offset = std::clamp(before, redis_now - heard_at, redis_now - sent_at);
  if (offset != before) clock_offset_.store(offset, std::memory_order_relaxed);
}

std::uint32_t RedisStore::foreign_shape(std::uint32_t shape) const {
  if (!any_foreign_.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard guard(foreign_mutex_);
  const auto found = foreign_.find(shape);
  return found != foreign_.end() ? found->second : 0;
}

void RedisStore::remember_foreign(std::uint32_t shape, std::uint32_t foreign) {
  const std::lock_guard guard(foreign_mutex_);
  if (foreign_.size() >= kMaxForeign) foreign_.clear();
  foreign_[shape] = foreign;
  any_foreign_.store(true, std::memory_order_relaxed);
}

}  // namespace headgate::store::redis

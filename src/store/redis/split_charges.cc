// A charge list whose cells lie in several slots of a cluster: no script reaches all of them, so each slot is charged
// on its own, at once, and notes what would undo it. When all have answered the charge list is settled: if all had room
// the notes are crossed out, else what they say is done. Meanwhile others may see those units as used, never as free.
// What is not settled within kNoteLasts, because its server was lost, is undone by the next call; so is a slot
// whose settling was lost though the charge list was admitted, which then has not been charged.
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "store/redis/redis_store.h"
#include "store/verdict.h"

namespace headgate::store::redis {
namespace {

// For a reservation, all must agree on the instant: it is looked for, and tried this often before it counts as denied.
constexpr int kMaxTries = 3;

bool admitted(const RemoteStore::Answer& answer) noexcept {
  return (answer.applied.wait == Nanos{0} || answer.applied.reserved) && !answer.applied.store_full;
}

}  // namespace

class RedisStore::SplitCharges {
 public:
  SplitCharges(RedisStore& store, const Terms& terms, std::span<core::Outcome> outcomes, Done done)
      : store_(store), terms_(terms), outcomes_(outcomes), done_(std::move(done)) {}

  void add(std::uint16_t slot, const Charge& charge, std::size_t index) {
    Part* part = nullptr;
    for (Part& each : parts_) {
      if (each.slot == slot) part = &each;
    }
    if (part == nullptr) part = &parts_.emplace_back(slot);
    part->charges.push_back(charge);
    part->indexes.push_back(index);
  }

  // Deletes itself once it has answered.
  void start() {
    looking_ = terms_.effect == Effect::kReserve;
    ask();
  }

 private:
  struct Part {
    explicit Part(std::uint16_t of) : slot(of) {}
    std::uint16_t slot;
    std::vector<Charge> charges;
    std::vector<std::size_t> indexes;  // in the charge list
    std::vector<core::Outcome> outcomes;
    std::optional<Result<Answer>> answer;
  };

  void ask() {
    Terms terms = terms_;
    if (looking_) terms.effect = Effect::kNone;
    // Each try has a name of its own: the undoing of the one before may come after this.
    if (terms.effect != Effect::kNone) {
      noted_as_ = terms.note_as = std::max<std::uint64_t>(store_.next_note_.fetch_add(1, std::memory_order_relaxed), 1);
    }
    waiting_for_.store(parts_.size(), std::memory_order_relaxed);
    // The last answer may end this before the loop has: it may not look at `parts_` again after asking.
    Part* part = parts_.data();
    for (std::size_t left = parts_.size(); left > 0; --left, ++part) {
      part->outcomes.assign(part->charges.size(), {});
      store_.apply_slot(terms, part->charges, part->outcomes, [this, part](const Result<Answer>& answer) {
        part->answer = answer;
        if (waiting_for_.fetch_sub(1, std::memory_order_acq_rel) == 1) all_answered();
      });
    }
  }

  void all_answered() {
    const Error* error = nullptr;
    for (const Part& part : parts_) {
      if (!*part.answer) error = &part.answer->error();
    }
    if (error != nullptr) {
      const Error failed = *error;
      settle(Settling::kUndo);
      return end(failed);
    }
    const Answer together = joined();
    if (looking_) {
      // What can be had is now asked for; what can't be is answered as it was seen.
      const Nanos wait = together.applied.wait;
      if (wait == kNever || wait > terms_.patience || !may_wait()) return end(together);
      looking_ = false;
      terms_.least = wait;
      return ask();
    }
    if (terms_.effect == Effect::kNone) return end(together);
    bool all = true;
    bool agreed = true;
    for (const Part& part : parts_) {
      all = all && admitted(**part.answer);
      agreed = agreed && (*part.answer)->applied.wait == terms_.least;
    }
    if (all && (agreed || terms_.effect != Effect::kReserve)) {
      settle(Settling::kKeep);
      return end(together);
    }
    settle(Settling::kUndo);
    if (all && ++tries_ < kMaxTries) {  // another server has charged one of them meanwhile
      looking_ = true;
      terms_.least = Nanos{0};
      return ask();
    }
    Answer denied = together;
    denied.applied.reserved = false;
    if (denied.applied.wait == Nanos{0}) denied.applied.wait = std::chrono::microseconds{1};
    end(denied);
  }

  // Whether each charge may be waited for as long as it has to be.
  [[nodiscard]] bool may_wait() const noexcept {
    ChargeVerdict verdict(Effect::kReserve, terms_.patience);
    for (const Part& part : parts_) {
      for (std::size_t i = 0; i < part.charges.size(); ++i) verdict.add(part.charges[i], part.outcomes[i]);
    }
    return verdict.in_time();
  }

  [[nodiscard]] Answer joined() const {
    Answer together = **parts_[0].answer;
    for (const Part& part : parts_) {
      const Answer& answer = **part.answer;
      for (std::size_t i = 0; i < part.indexes.size(); ++i) outcomes_[part.indexes[i]] = part.outcomes[i];
      // Where clocks differ, a refund must not look later than it was charged.
      together.at = std::min(together.at, answer.at);
      together.applied.wait = longer_wait(together.applied.wait, answer.applied.wait);
      together.applied.reserved = together.applied.reserved || answer.applied.reserved;
      together.applied.store_full = together.applied.store_full || answer.applied.store_full;
    }
    return together;
  }

  // A slot that has not answered may have been charged.
  void settle(Settling how) {
    if (noted_as_ == 0) return;
    for (const Part& part : parts_) {
      const bool denied = part.answer->has_value() && !admitted(**part.answer);
      if (!denied) store_.settle(how, terms_.now, noted_as_, part.charges);
    }
    noted_as_ = 0;
  }

  void end(const Result<Answer>& answer) {
    done_(answer);
    delete this;
  }

  RedisStore& store_;
  Terms terms_;
  std::span<core::Outcome> outcomes_;
  Done done_;
  std::vector<Part> parts_;
  std::atomic<std::size_t> waiting_for_{0};
  std::uint64_t noted_as_ = 0;  // 0: nothing is
  bool looking_ = false;
  int tries_ = 0;
};

void RedisStore::apply_split(const Terms& terms, std::span<const Charge> charges, std::span<core::Outcome> outcomes,
                             Done done) {
  auto split = std::make_unique<SplitCharges>(*this, terms, outcomes, std::move(done));
  for (std::size_t i = 0; i < charges.size(); ++i) {
    split->add(slot_of(key_of(charges[i].key)), charges[i], i);
  }
  split.release()->start();
}

}  // namespace headgate::store::redis

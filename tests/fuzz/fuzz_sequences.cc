// Checks that queue, hold, settle, release, are cancelled and come back late, while the clock steps and policies are
// replaced, against a slow model: no limit admits more than it has, every check is answered exactly once, no lease is
// lost, and in the end no check waits and every slot is free.
#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "fuzz/held_remote.h"
#include "fuzz/steps.h"
#include "policy/reader.h"

namespace {

using namespace headgate;
using namespace std::chrono_literals;
using engine::CheckDecision;
using engine::Why;
using test::check_that;

constexpr Nanos kLease = 5s;
constexpr Nanos kWindow = 10s;
constexpr std::size_t kMostWaiting = 4;
constexpr std::size_t kMostLeases = 6;
constexpr int kInWindow = 3;
constexpr int kInLog = 2;
constexpr int kSlots[] = {2, 1, 3};  // by document
constexpr std::size_t kMostSteps = 400;

enum class Operation : std::uint8_t { kRun, kSend, kWait, kTokens };
constexpr std::string_view kOperations[] = {"run", "send", "wait", "tokens"};
constexpr std::string_view kAgents[] = {"a", "b"};

std::string document(std::size_t which) {
  return "leases: {ttl: 5s}\nqueue: {max_waiting: " + std::to_string(kMostWaiting) +
         "}\npolicies:\n"
         "  - {id: run, match: {operations: [run]}, key: [agent], behavior: queue, max_wait: 8s,\n"
         "     limit: {strategy: concurrency, max: " +
         std::to_string(kSlots[which]) +
         ", lease_ttl: 5s}}\n"
         "  - {id: send, match: {operations: [send]}, key: [agent], limit: {strategy: fixed_window, limit: 3, window: "
         "10s}}\n"
         "  - {id: wait, match: {operations: [wait]}, key: [agent], behavior: queue, max_wait: 8s,\n"
         "     limit: {strategy: sliding_window, limit: 2, window: 10s}}\n"
         "  - {id: tokens, match: {operations: [tokens]}, unit: tokens, limit: {strategy: token_bucket, capacity: 100, "
         "refill_rate: 10/1s}}\n";
}

std::vector<policy::Document> documents() {
  std::vector<policy::Document> all;
  for (std::size_t i = 0; i < std::size(kSlots); ++i) {
    policy::ReadResult read = policy::read_text(document(i), "fuzz.yaml");
    for (const policy::Problem& problem : read.problems) check_that(false, problem.text().c_str());
    all.push_back(std::move(read.document));
  }
  return all;
}

// One check that was asked, as the model knows it.
struct Asked {
  Operation operation{};
  std::size_t agent = 0;
  bool hold = false;
  Nanos at{0};
  std::uint64_t waiting = 0;  // what cancel() takes
  int made = 0;
  int told = 0;
};

struct Lease {
  std::string id;
  Operation operation{};
  std::size_t agent = 0;
  Nanos charged{0};
  Nanos expires{0};
  bool ended = false;
  bool kept = false;  // settled: its cost stays charged
};

class World {
 public:
  explicit World(bool far) : remote_(clock_), far_(far), engine_(options()) { reload(0); }

  void step(test::Steps& input) {
    const std::uint8_t what = input.byte();
    const std::uint8_t how = input.byte();
    switch (what % 12) {
      case 0: return ask_now(how);
      case 1:
      case 2: return ask_async(how);
      case 3: return end(how, true);
      case 4: return end(how, false);
      case 5: return renew(how);
      case 6: return cancel(how);
      case 7: return advance(how);
      case 8: return poll();
      case 9: return reload(how % std::size(kSlots));
      case 10: return answer(how);
      default: return peek(how);
    }
  }

  // No check waits for ever, each is answered exactly once, and what was taken is freed.
  void finish() {
    while (remote_.held() > 0) answer(0);
    for (int i = 0; i < 60 && (engine_.queue().size() > 0 || remote_.held() > 0); ++i) {
      clock_.advance(1s);
      poll();
      while (remote_.held() > 0) answer(0);
    }
    check_that(engine_.queue().size() == 0, "nobody waits in the end");
    for (const Asked& asked : asked_) check_that(asked.told == 1, "every check is answered exactly once");
    clock_.advance(kLease + kWindow + 1s);
    poll();
    check_that(engine_.holds().open() == 0, "every lease ends");
    if (far_) return;
    for (std::size_t agent = 0; agent < std::size(kAgents); ++agent) {
      for (int i = 0; i < slots_; ++i) {
        CheckDecision decision = engine_.check(check_of(Operation::kRun, agent, false));
        check_that(decision.allowed, "every slot is free in the end");
      }
    }
  }

 private:
  engine::EngineOptions options() {
    engine::EngineOptions options;
    options.clock = &clock_;
    options.seed = 1;
    options.max_leases = kMostLeases;
    if (far_) options.remote = &remote_;
    return options;
  }

  static Check check_of(Operation operation, std::size_t agent, bool hold) {
    static const std::vector<Cost> kTokens{{"tokens", 30}};
    Check check;
    check.operation = kOperations[static_cast<std::size_t>(operation)];
    check.agent = kAgents[agent];
    check.hold = hold;
    if (operation == Operation::kTokens) check.costs = kTokens;
    return check;
  }
  Asked& asked_of(std::uint8_t how) {
    return asked_.emplace_back(
        Asked{static_cast<Operation>(how % 4), static_cast<std::size_t>(how >> 2 & 1), (how & 8U) != 0, clock_.now()});
  }

  void ask_now(std::uint8_t how) {
    if (far_) return;  // would wait for an answer that only we can give
    Asked& asked = asked_of(how);
    const bool line = engine_.queue().size() > 0;
    told(asked, engine_.check(check_of(asked.operation, asked.agent, asked.hold)), line);
  }

  void ask_async(std::uint8_t how) {
    Asked& asked = asked_of(how);
    Check check = check_of(asked.operation, asked.agent, asked.hold);
    if ((how & 16U) != 0) check.max_wait = 2s;
    check.priority = (how & 32U) != 0 ? 5 : 0;
    CheckDecision decision;
    const bool line = engine_.queue().size() > 0;
    asked.waiting = engine_.check_or_wait(
        {clock_.now(), check, {}, engine::OnDenial::kQueue}, decision, [&]() -> engine::Engine::Done {
          ++asked.made;
          return [this, &asked](const CheckDecision& answer) { told(asked, answer, true); };
        });
    check_that(asked.made <= 1, "at most one callback is made");
    check_that(asked.waiting == 0 || asked.made == 1, "who waits has made a callback");
    if (asked.waiting == 0 && asked.made == 0) told(asked, decision, line);
    check_that(engine_.queue().size() <= kMostWaiting, "the line keeps its bound");
  }

  [[nodiscard]] int held(std::size_t agent, Nanos least) const {
    return static_cast<int>(std::count_if(leases_.begin(), leases_.end(), [&](const Lease& lease) {
      return lease.operation == Operation::kRun && lease.agent == agent && !lease.ended && lease.expires >= least;
    }));
  }
  // What is certainly charged to the present window.
  [[nodiscard]] int in_window(std::size_t agent, Nanos now) const {
    const auto same = [&](Nanos charged) { return charged / kWindow == now / kWindow; };
    const auto leased = std::count_if(leases_.begin(), leases_.end(), [&](const Lease& lease) {
      return lease.operation == Operation::kSend && lease.agent == agent && same(lease.charged) &&
             (lease.kept || (!lease.ended && lease.expires > now));
    });
    return static_cast<int>(leased + std::count_if(sent_[agent].begin(), sent_[agent].end(), same));
  }
  [[nodiscard]] int in_log(std::size_t agent, Nanos now) const {
    return static_cast<int>(std::count_if(waited_[agent].begin(), waited_[agent].end(),
                                          [&](Nanos admitted) { return now - admitted < kWindow; }));
  }

  void told(Asked& asked, const CheckDecision& decision, bool behind_others) {
    check_that(++asked.told == 1, "no check is answered twice");
    const Nanos now = clock_.now();
    if (!decision.allowed) {
      check_that(decision.lease.empty(), "a denial holds nothing");
      const bool exceeded = decision.why == Why::kExceeded && asked.operation == Operation::kRun;
      if (exceeded && !behind_others && !far_) {
        check_that(held(asked.agent, now) >= slots_, "a slot is denied only if none is free");
      }
      return;
    }
    const bool leased = !decision.lease.empty();
    check_that(leased == (asked.hold || asked.operation == Operation::kRun), "a lease where something is held");
    if (!stood_in_) {
      switch (asked.operation) {
        case Operation::kRun:
          check_that(held(asked.agent, now + Nanos{1}) < slots_, "no more slots than there are");
          break;
        case Operation::kSend:
          check_that(in_window(asked.agent, now) < kInWindow, "no more than the limit in a window");
          break;
        case Operation::kWait:
          check_that(asked.hold || in_log(asked.agent, now) < kInLog, "no more than the limit in any window");
          break;
        case Operation::kTokens: break;
      }
    }
    if (leased) {
      // What a remote store was asked about is held from when it was asked.
      const Nanos since = far_ && !remote_.at_once ? asked.at : now;
      leases_.push_back({decision.lease, asked.operation, asked.agent, now, since + kLease});
    } else if (asked.operation == Operation::kSend) {
      sent_[asked.agent].push_back(now);
    } else if (asked.operation == Operation::kWait) {
      waited_[asked.agent].push_back(now);
    }
    check_that(engine_.holds().open() <= kMostLeases, "leases keep their bound");
  }

  void end(std::uint8_t how, bool settle) {
    if (leases_.empty()) return;
    Lease& lease = leases_[how % leases_.size()];
    const bool live = !lease.ended && lease.expires > clock_.now();
    const Cost actual{"tokens", static_cast<double>(how)};
    const bool some = lease.operation == Operation::kTokens;
    const auto ended = settle ? engine_.holds().settle(lease.id, "", {&actual, some ? std::size_t{1} : std::size_t{0}})
                              : engine_.holds().release(lease.id, "");
    check_that(!live || (ended.has_value() && !ended->again), "no lease is lost");
    check_that(live || !ended.has_value() || ended->again, "no lease ends twice");
    if (!live) return;
    check_that(ended->overrun >= 0, "an overrun is no credit");
    lease.ended = true;
    lease.kept = settle;
  }

  void renew(std::uint8_t how) {
    if (leases_.empty()) return;
    Lease& lease = leases_[how % leases_.size()];
    const bool live = !lease.ended && lease.expires > clock_.now();
    const Result<Nanos> until = engine_.holds().renew(lease.id, "");
    check_that(until.has_value() == live, "a lease can be renewed as long as it lasts");
    if (live) lease.expires = clock_.now() + kLease;
  }

  void cancel(std::uint8_t how) {
    if (asked_.empty()) return;
    Asked& asked = asked_[asked_.size() - 1 - how % asked_.size()];
    if (asked.waiting == 0) return;
    const int before = asked.told;
    const bool cancelled = engine_.queue().cancel(asked.waiting);
    check_that(asked.told == before + (cancelled ? 1 : 0), "who is cancelled is told so, once");
  }

  void advance(std::uint8_t how) {
    constexpr Nanos kSteps[] = {1ms, 100ms, 1s, 2s, 5s, 10s, 1ns, 4999ms};
    clock_.advance(kSteps[how % std::size(kSteps)]);
    if ((how & 64U) != 0) poll();
  }

  void poll() {
    remote_.at_once = true;
    (void)engine_.poll();
    remote_.at_once = false;
    engine_.maintain(10);
    check_that(engine_.queue().size() <= kMostWaiting, "the line keeps its bound");
  }

  void reload(std::size_t which) {
    static const std::vector<policy::Document> kDocuments = documents();
    check_that(engine_.load(kDocuments[which]).has_value(), "policies can be replaced");
    slots_ = kSlots[which];
  }

  void answer(std::uint8_t how) {
    const bool away = (how & 128U) != 0;
    stood_in_ = stood_in_ || (away && remote_.held() > 0);
    (void)remote_.answer(how & 127U, away);
  }

  void peek(std::uint8_t how) {
    if (far_) return;
    Check check = check_of(static_cast<Operation>(how % 4), how >> 2 & 1, false);
    check.peek = true;
    const std::size_t open = engine_.holds().open();
    const CheckDecision first = engine_.check(check);
    const CheckDecision second = engine_.check(check);
    check_that(first.allowed == second.allowed && first.lease.empty(), "to look changes nothing");
    check_that(engine_.holds().open() <= open, "to look holds nothing");
  }

  ManualClock clock_{std::chrono::seconds{1'700'000'000}};
  test::HeldRemote remote_;
  bool far_;
  bool stood_in_ = false;  // cells of this process have answered, which may admit their share once more
  int slots_ = 0;
  std::deque<Asked> asked_;
  std::vector<Lease> leases_;
  std::vector<Nanos> sent_[2];
  std::vector<Nanos> waited_[2];
  engine::Engine engine_;
};

}  // namespace

// A byte for where the cells are, then two bytes for each step.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 2 * kMostSteps) return 0;
  test::Steps input(data, size);
  World world((input.byte() & 1U) != 0);
  while (input.more()) world.step(input);
  world.finish();
  return 0;
}

// What a Redis may answer: any bytes, and replies of the right shape with any content. They are read within their
// bounds, whole and in pieces; and whatever comes back, a plan is answered exactly once.
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/steps.h"
#include "headgate/limit.h"
#include "store/redis/cell_codec.h"
#include "store/redis/lease_script.h"
#include "store/redis/reader.h"
#include "store/redis/redis_store.h"

namespace {

using namespace headgate;
using namespace std::chrono_literals;
namespace redis = store::redis;
using test::check_that;

constexpr std::size_t kMostBytes = 4096;
constexpr std::size_t kMostReply = 2000;
constexpr int kMostCalls = 500;

// How much a reply holds.
std::size_t text_in(const redisReply& reply) {
  std::size_t all = reply.str != nullptr ? reply.len : 0;
  for (std::size_t i = 0; i < reply.elements; ++i) all += text_in(*reply.element[i]);
  return all;
}

void read_all(std::string_view bytes, std::size_t piece) {
  redis::ReplyReader reader(kMostReply);
  while (!bytes.empty() && !reader.broken()) {
    const std::string_view next = bytes.substr(0, piece);
    // In memory of its own size, so that a sanitizer sees who reads further.
    const std::vector<char> copy(next.begin(), next.end());
    reader.feed(copy.data(), copy.size());
    bytes.remove_prefix(next.size());
    while (const redis::ReplyPtr reply = reader.next()) {
      check_that(text_in(*reply) <= kMostReply, "a reply keeps its bound");
      (void)redis::read_held(redis::Reply(reply.get()));
    }
  }
  check_that(!reader.broken() || !reader.why().empty(), "a broken reply says why");
}

// Answers each command with a reply made of the input, and with an error once that is used up.
class Answers final : public redis::Caller {
 public:
  explicit Answers(test::Steps& input) : input_(input) {}

  void call(redis::Command command, Done done) override {
    check_that(++calls_ < kMostCalls, "nothing is asked for ever");
    if ((input_.byte() & 1U) != 0) {
      held_.push_back({std::move(done), command.hear_late});
    } else {
      answer({std::move(done), command.hear_late});
    }
  }
  bool answer_held() {
    if (held_.empty()) return false;
    const Held next = std::move(held_.front());
    held_.pop_front();
    answer(next);
    return true;
  }

 private:
  struct Held {
    Done done;
    bool hear_late = false;
  };

  void answer(const Held& held) {
    const bool late = input_.more() && held.hear_late && (input_.byte() & 1U) != 0;
    if (late || !input_.more()) held.done(Error{ErrorCode::kIo, "no answer in time", true});
    if (late || input_.more()) tell(held.done);
  }

  void tell(const Done& done) {
    std::string wire;
    append(wire, 0);
    redis::ReplyReader reader(1 << 20);
    reader.feed(wire.data(), wire.size());
    const redis::ReplyPtr reply = reader.next();
    check_that(reply != nullptr, "what was made is a reply");
    if (reply->type == REDIS_REPLY_ERROR) {
      done(Error{ErrorCode::kIo, std::string(reply->str, reply->len), (input_.byte() & 1U) != 0});
    } else {
      done(redis::Reply(reply.get()));
    }
  }

  void append(std::string& wire, int depth) {
    constexpr std::string_view kErrors[] = {"OOM no memory",     "WRONGTYPE not ours", "NOSCRIPT no script",
                                            "READONLY replica",  "MOVED 1 h:1",        "BUSY a script runs",
                                            "ERR something else"};
    switch (const std::uint8_t kind = input_.byte(); kind % 6) {
      case 0: wire += "$-1\r\n"; return;
      case 1: wire += ":" + std::to_string(static_cast<int>(input_.byte()) - 100) + "\r\n"; return;
      case 2: (wire += "-") += std::string(kErrors[input_.byte() % std::size(kErrors)]) + "\r\n"; return;
      case 3: {
        const std::size_t count = depth < 2 ? kind / 6 % 5 : 0;
        wire += "*" + std::to_string(count) + "\r\n";
        for (std::size_t i = 0; i < count; ++i) append(wire, depth + 1);
        return;
      }
      default: {
        // What a script of ours answers has one of few lengths.
        constexpr std::size_t kSizes[] = {17, 25, 41, 46, 54, 50, 41, 75, 0, 1, 16, 83};
        const std::size_t size = kSizes[input_.byte() % std::size(kSizes)];
        std::string text(1, static_cast<char>(input_.byte() % 10));
        text += input_.bytes(size);
        text.resize(size, '\0');
        wire += "$" + std::to_string(size) + "\r\n" + text + "\r\n";
      }
    }
  }

  test::Steps& input_;
  std::deque<Held> held_;
  int calls_ = 0;
};

const std::vector<Limit>& limits() {
  static const std::vector<Limit> kLimits = {
      *Limit::token_bucket({10, {1, 1s}}), *Limit::gcra({5, 10, 1min}),
      *Limit::sliding_window({10, 1min}),  *Limit::sliding_window_counter({10, 1min}),
      *Limit::fixed_window({10, 1min}),    *Limit::leaky_bucket({{10, 1s}, 5}),
      *Limit::concurrency({3, 30s}),       *Limit::quota({10, Period::kDay, "UTC"}),
  };
  return kLimits;
}

void ask(test::Steps& input) {
  Answers answers(input);
  const std::uint8_t how = input.byte();
  std::size_t faults = 0;
  redis::RedisStore store(answers, {.prefix = "fuzz:", .cluster = (how & 1U) != 0, .on_fault = [&](const Error& fault) {
                                      check_that(!fault.message.empty(), "a fault says what it is");
                                      ++faults;
                                    }});
  std::vector<std::unique_ptr<store::LiveLimit>> live;
  for (const Limit& limit : limits()) live.push_back(std::make_unique<store::LiveLimit>(core::compile(limit)));
  struct Plan {
    std::vector<store::Charge> charges;
    std::vector<core::Outcome> outcomes;
    int told = 0;
  };
  std::deque<Plan> plans;
  std::size_t others = 0;
  std::size_t told = 0;
  for (int i = 0; i < 6; ++i) {
    Plan& plan = plans.emplace_back();
    const std::uint8_t what = input.byte();
    for (std::size_t n = 0; n <= what % 3U; ++n) {
      store::Charge charge;
      charge.key = {n + 1, static_cast<std::uint64_t>(what)};
      charge.limit = live[(what + n) % live.size()].get();
      charge.cost = 1;
      charge.soft = (what & 64U) != 0;
      plan.charges.push_back(charge);
    }
    plan.outcomes.resize(plan.charges.size());
    store::Ask ask;
    ask.lease = 7;
    ask.effect = (what & 32U) != 0 ? store::Effect::kReserve : store::Effect::kCharge;
    ask.patience = 10s;
    store.apply(plan.charges, ask, plan.outcomes, [&](const Result<store::RemoteStore::Answer>& answer) {
      check_that(++plan.told == 1, "a plan is answered once");
      check_that(!answer || answer->applied.wait >= Nanos{0}, "no wait is negative");
    });
    const store::Charge& charge = plan.charges.front();
    const auto heard = [&](const Result<bool>&) { ++told; };
    if ((what & 16U) != 0 && charge.limit->strategy() == Strategy::kConcurrency) {
      ++others;
      (what & 8U) != 0 ? store.release(charge, 7, heard) : store.renew(charge, 7, heard);
    } else if ((what & 16U) != 0) {
      ++others;
      store.refund(charge, 1s, heard);
    }
  }
  while (answers.answer_held()) continue;
  for (const Plan& plan : plans) check_that(plan.told == 1, "every plan is answered");
  check_that(told == others, "every other call is answered");
}

}  // namespace

// A byte: even, bytes of a connection follow, which it also says the pieces of; odd, what replies are made of.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > kMostBytes) return 0;
  test::Steps input(data, size);
  const std::uint8_t first = input.byte();
  if ((first & 1U) != 0) {
    ask(input);
    return 0;
  }
  const std::string_view bytes = input.bytes(size);
  read_all(bytes, bytes.size());
  read_all(bytes, first / 2 % 31 + 1);
  std::string longer;
  if (const auto answer = redis::read_answer(bytes, longer)) {
    check_that(answer->index < store::kMaxCharges, "an answer is about a charge of the plan");
    const store::LiveLimit live(core::compile(limits()[first / 2 % limits().size()]));
    redis::CodedCharge coded;
    coded.limit = redis::as_counted(live.current());
    coded.shape = redis::shape_of(coded.limit);
    coded.cost = 1;
    const std::size_t told = redis::told_of(live.strategy());
    if (answer->cells.size() >= told) (void)redis::judge_told(coded, answer->cells.substr(0, told), answer->now);
  }
  for (const Strategy strategy : {Strategy::kTokenBucket, Strategy::kSlidingWindow, Strategy::kQuota}) {
    (void)redis::shape_in(strategy, bytes);
  }
  return 0;
}

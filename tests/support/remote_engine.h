// An engine whose cells are in a remote store that answers, or does not, as the test says.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "support/engines.h"

namespace headgate::test {

// A remote store as an engine sees it: cells in memory, by the test's clock.
class FakeRemote final : public store::RemoteStore {
 public:
  explicit FakeRemote(Clock& clock) : clock_(clock), cells_({.seed = 1}) {}

  void apply(std::span<const store::Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
             Done done) override {
    ++asked;
    auto answer = [this, charges, ask, outcomes, done = std::move(done)] {
      if (why) return done(Error{*why, "no answer", true});
      store::Ask now = ask;
      now.now = clock_.now();
      now.wall = clock_.wall(now.now);
      done(Answer{cells_.apply(charges, now, outcomes), now.now});
    };
    if (holds_back) {
      waiting.emplace_back(std::move(answer));
    } else {
      answer();
    }
  }
  std::optional<store::Applied> try_now(std::span<const store::Charge> charges, const store::Ask&,
                                        std::span<core::Outcome> outcomes) override {
    if (leased_units <= 0) return std::nullopt;
    for (const store::Charge& charge : charges) {
      if (!charge.leased) return std::nullopt;
    }
    --leased_units;
    for (std::size_t i = 0; i < charges.size(); ++i) outcomes[i] = {.limit = 10, .remaining = leased_units};
    return store::Applied{};
  }
  void refund(const store::Charge& charge, Nanos charged_at, Told told) override {
    change(std::move(told), [this, charge, charged_at] {
      cells_.refund(charge, charged_at, clock_.now());
      return true;
    });
  }
  void release(const store::Charge& charge, LeaseId lease, Told told) override {
    change(std::move(told), [this, charge, lease] { return cells_.release(charge, lease, clock_.now()); });
  }
  void renew(const store::Charge& charge, LeaseId lease, Told told) override {
    change(std::move(told), [this, charge, lease] { return cells_.renew(charge, lease, clock_.now()); });
  }
  Nanos now_approx() const noexcept override { return clock_.now(); }

  void answer_all() {
    while (!waiting.empty()) {
      const auto next = std::move(waiting.front());
      waiting.pop_front();
      next();
    }
  }

  std::optional<ErrorCode> why;  // it does not answer: kIo: it is away, kTimedOut: it is late
  bool holds_back = false;       // checks are judged by answer_all()
  bool changes_late = false;     // refunds, releases and renewals are applied and confirmed by answer_all()
  Units leased_units = 0;        // taken ahead
  int asked = 0;
  std::deque<std::function<void()>> waiting;

 private:
  void change(Told told, std::function<bool()> apply) {
    auto answer = [told = std::move(told), apply = std::move(apply)] {
      const bool changed = apply();
      if (told) told(changed);
    };
    if (changes_late) {
      waiting.emplace_back(std::move(answer));
    } else {
      answer();
    }
  }

  Clock& clock_;
  store::MemoryStore cells_;
};

class RemoteEngineFixture : public testing::Test {
 protected:
  // One policy, ten a minute for each agent; `more` is more of it: ", on_store_failure: open".
  void load_ten(const std::string& more = "") {
    load(
        "policies: [{id: ten, match: {operations: [op]}, key: [agent], "
        "limit: {strategy: sliding_window, limit: 10, window: 60s}" +
        more + "}]");
  }
  void load(const std::string& yaml) { ASSERT_TRUE(engine.load(read(yaml))); }
  static Check check_of(std::string_view agent = "a") {
    Check check;
    check.agent = agent;
    check.operation = "op";
    return check;
  }
  // How many of so many checks are allowed, one after the other.
  int admitted(int asks) {
    int count = 0;
    for (int i = 0; i < asks; ++i) count += engine.check(check_of()).allowed ? 1 : 0;
    return count;
  }

  ManualClock clock{std::chrono::seconds{1'000'000}};
  FakeRemote remote{clock};
  int wakes = 0;
  headgate::engine::Engine engine{{.clock = &clock, .seed = 1, .remote = &remote, .wake = [this] { ++wakes; }}};
};

}  // namespace headgate::test

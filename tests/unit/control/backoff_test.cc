#include "control/backoff.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "unit/control/figures.h"

namespace headgate::control {
namespace {

using namespace std::chrono_literals;

BackoffState after(std::uint32_t violations, const BackoffSettings& settings) {
  BackoffState state;
  for (std::uint32_t i = 0; i < violations; ++i) state = violated(state, settings, kStart);
  return state;
}

TEST(Backoff, ViolationsInARowWaitLongerAndTheLastStepRepeats) {
  const BackoffSettings settings;
  BackoffState state;
  for (const Nanos expected : {1s, 2s, 5s, 10s, 30s, 30s, 30s}) {
    state = violated(state, settings, kStart);
    EXPECT_EQ(delay(state, settings), expected);
  }
}

TEST(Backoff, NobodyIsToldToWaitBeforeTheFirstViolation) {
  const BackoffSettings settings{.enforced = true};
  EXPECT_EQ(delay({}, settings), 0s);
  EXPECT_EQ(blocked_until({}, settings), 0s);
  EXPECT_FALSE(active({}, settings, 0s));
  EXPECT_FALSE(active({}, settings, kStart));
}

TEST(Backoff, ExactlyAQuietPeriodForgives) {
  const BackoffSettings settings;
  const BackoffState state = after(3, settings);
  EXPECT_TRUE(active(state, settings, kStart + 60s - 1ns));
  EXPECT_EQ(violated(state, settings, kStart + 60s - 1ns).consecutive, 4U);
  EXPECT_FALSE(active(state, settings, kStart + 60s));
  EXPECT_EQ(violated(state, settings, kStart + 60s).consecutive, 1U);
}

TEST(Backoff, ClockGoingBackwardsNeitherForgivesNorLengthens) {
  const BackoffSettings settings{.enforced = true};
  const BackoffState state = after(2, settings);
  for (const Nanos now : {kStart - 1h, Nanos{0}, Nanos{-1}, Nanos::min()}) {
    EXPECT_TRUE(active(state, settings, now));
    const BackoffState next = violated(state, settings, now);
    EXPECT_EQ(next.consecutive, 3U);
    EXPECT_EQ(next.last, kStart);
  }
  EXPECT_FALSE(active(state, settings, Nanos::max()));
  EXPECT_EQ(violated(state, settings, Nanos::max()).last, kMaxTime);
}

TEST(Backoff, NoStepsMeanNoWait) {
  const BackoffSettings settings{.steps = {}, .enforced = true};
  EXPECT_EQ(delay(after(3, settings), settings), 0s);
  EXPECT_EQ(blocked_until(after(3, settings), settings), kStart);
}

TEST(Backoff, BlocksOnlyWhenEnforcedAndNeverBeyondTheQuietPeriod) {
  EXPECT_EQ(blocked_until(after(3, {}), {}), 0s);
  const BackoffSettings enforced{.enforced = true};
  EXPECT_EQ(blocked_until(after(3, enforced), enforced), kStart + 5s);
  const BackoffSettings long_steps{.steps = {1h}, .quiet = 10s, .enforced = true};
  EXPECT_EQ(blocked_until(after(1, long_steps), long_steps), kStart + 10s);
}

TEST(Backoff, CountingStopsAtTheTop) {
  const BackoffSettings settings;
  const BackoffState full{std::numeric_limits<std::uint32_t>::max(), kStart};
  EXPECT_EQ(violated(full, settings, kStart).consecutive, full.consecutive);
  EXPECT_EQ(delay(full, settings), 30s);
}

TEST(Backoff, SettingsOutOfRangeAreRefusedByName) {
  const auto refusal = [](const BackoffSettings& settings) {
    const auto valid = validate(settings);
    return valid ? std::string("accepted") : valid.error().message;
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.steps = {1ms}, .quiet = 1s}), "accepted");
  EXPECT_EQ(refusal({.steps = std::vector<Nanos>(16, 24h), .quiet = 7 * 24h}), "accepted");
  EXPECT_EQ(refusal({.steps = {}}), "steps must be between 1 and 16 durations, got 0");
  EXPECT_EQ(refusal({.steps = std::vector<Nanos>(17, 1s)}), "steps must be between 1 and 16 durations, got 17");
  EXPECT_EQ(refusal({.steps = {1s, 999us}}), "steps[1] must be between 1ms and 1d, got 999us");
  EXPECT_EQ(refusal({.steps = {24h + 1s}}), "steps[0] must be between 1ms and 1d, got 86401s");
  EXPECT_EQ(refusal({.steps = {-1s}}), "steps[0] must be between 1ms and 1d, got -1s");
  EXPECT_EQ(refusal({.steps = {2s, 1s}}), "steps[1] must be no shorter than the step before it, 2s, got 1s");
  EXPECT_EQ(refusal({.quiet = 999ms}), "quiet must be between 1s and 7d, got 999ms");
  EXPECT_EQ(refusal({.quiet = 7 * 24h + 1s}), "quiet must be between 1s and 7d, got 604801s");
}

// Keeps every violation, and looks back from each to find where its row began.
class Slow {
 public:
  explicit Slow(BackoffSettings settings) : settings_(std::move(settings)) {}
  void violate(Nanos now) { instants_.push_back(instants_.empty() ? now : std::max(now, instants_.back())); }
  [[nodiscard]] std::uint32_t consecutive() const {
    std::uint32_t row = instants_.empty() ? 0 : 1;
    for (std::size_t i = instants_.size(); i > 1; --i, ++row) {
      if (instants_[i - 1] - instants_[i - 2] >= settings_.quiet) break;
    }
    return row;
  }
  [[nodiscard]] Nanos delay() const {
    Nanos wait{0};
    std::uint32_t left = consecutive();
    for (std::size_t i = 0; i < settings_.steps.size() && left > 0; ++i, --left) wait = settings_.steps[i];
    return wait;
  }
  [[nodiscard]] bool active(Nanos now) const { return !instants_.empty() && now < instants_.back() + settings_.quiet; }

 private:
  BackoffSettings settings_;
  std::vector<Nanos> instants_;
};

RC_GTEST_PROP(Backoff, AnswersLikeSomebodyWhoRemembersEverything, ()) {
  BackoffSettings settings;
  settings.steps.resize(*rc::gen::inRange<std::size_t>(0, 6));
  settings.quiet = std::chrono::seconds{*rc::gen::inRange(1, 60)};
  const auto gaps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-20, 90));
  Slow slow(settings);
  BackoffState state;
  Nanos now = kStart;
  for (const int gap : gaps) {
    now += std::chrono::seconds{gap};
    RC_ASSERT(active(state, settings, now) == slow.active(now));
    state = violated(state, settings, now);
    slow.violate(now);
    RC_ASSERT(state.consecutive == slow.consecutive());
    RC_ASSERT(delay(state, settings) == slow.delay());
    RC_ASSERT(active(state, settings, now));
  }
}

}  // namespace
}  // namespace headgate::control

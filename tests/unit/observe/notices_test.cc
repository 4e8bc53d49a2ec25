#include "observe/notices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "observe/log.h"

namespace headgate::observe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Remembers what it is told; can be held up.
class Listener : public NoticeSink {
 public:
  void on_notice(const Notice& notice) override {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    heard_.push_back(notice);
  }
  void hold() {
    const std::lock_guard guard(mutex_);
    held_ = true;
  }
  void let_go() {
    const std::lock_guard guard(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void wait_until_begun() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, 20s, [&] { return begun_ > 0; }));
  }
  std::vector<Notice> heard() {
    const std::lock_guard guard(mutex_);
    return heard_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int begun_ = 0;
  std::vector<Notice> heard_;
};

Notice notice_of(std::string kind) {
  Notice notice;
  notice.kind = std::move(kind);
  return notice;
}

TEST(NoticesThread, OwnsTheTextOfEventsAndNumbersThem) {
  auto listener = std::make_shared<Listener>();
  Notices notices;
  notices.add(listener);
  {
    const std::string agent = "A";
    const std::string text = "ten violations";
    notices.on_event({.kind = engine::Event::Kind::kSustainedAbuse,
                      .time = 5s,
                      .agent = agent,
                      .operation = "OP",
                      .policy_id = "p",
                      .to = "boss",
                      .text = text,
                      .value = 10});
  }
  notices.tell(notice_of("store_down"));
  notices.flush();
  const auto heard = listener->heard();
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].id, 1U);
  EXPECT_EQ(heard[0].kind, "sustained_abuse");
  EXPECT_EQ(heard[0].time, 5s);
  EXPECT_EQ(heard[0].agent, "A");
  EXPECT_EQ(heard[0].operation, "OP");
  EXPECT_EQ(heard[0].policy_id, "p");
  EXPECT_EQ(heard[0].to, "boss");
  EXPECT_EQ(heard[0].text, "ten violations");
  EXPECT_EQ(heard[0].value, 10);
  EXPECT_EQ(heard[1].id, 2U);
  EXPECT_EQ(heard[1].kind, "store_down");
  EXPECT_EQ(notices.told(), 2U);
}

TEST(NoticesThread, DoesNotWaitForASlowListenerButDropsAndCounts) {
  auto listener = std::make_shared<Listener>();
  listener->hold();
  Notices notices;
  notices.add(listener);
  notices.tell(notice_of("first"));
  listener->wait_until_begun();
  for (std::size_t i = 0; i < Notices::kMostQueued + 5; ++i) {
    notices.on_event({.kind = engine::Event::Kind::kViolation, .agent = "A"});
  }
  EXPECT_EQ(notices.dropped(), 5U);
  listener->let_go();
  notices.flush();
  EXPECT_EQ(listener->heard().size(), Notices::kMostQueued + 1);
}

TEST(NoticesThread, AFloodOfViolationsTakesNoOtherNoticeAlong) {
  auto listener = std::make_shared<Listener>();
  listener->hold();
  Notices notices;
  notices.add(listener);
  notices.tell(notice_of("first"));
  listener->wait_until_begun();
  for (std::size_t i = 0; i < Notices::kMostQueued + 1; ++i) {
    notices.on_event({.kind = engine::Event::Kind::kViolation, .agent = "A"});
  }
  for (std::size_t i = 0; i < Notices::kKeptFree + 1; ++i) {
    notices.on_event({.kind = engine::Event::Kind::kAdaptive, .value = 0.5});
  }
  EXPECT_EQ(notices.dropped(), 2U) << "one of each";
  listener->let_go();
  notices.flush();
  EXPECT_EQ(listener->heard().back().kind, "adaptive");
}

TEST(NoticesThread, TellsWhatIsQueuedBeforeItEnds) {
  auto listener = std::make_shared<Listener>();
  listener->hold();
  std::thread later;
  {
    Notices notices;
    notices.add(listener);
    for (int i = 0; i < 100; ++i) notices.tell(notice_of("x"));
    listener->wait_until_begun();
    later = std::thread([&] { listener->let_go(); });
  }
  later.join();
  EXPECT_EQ(listener->heard().size(), 100U);
}

TEST(NoticesThread, OneListenersTroubleIsNotTheOthers) {
  class Thrower : public NoticeSink {
    void on_notice(const Notice& /*notice*/) override { throw std::runtime_error("broken"); }
  };
  auto listener = std::make_shared<Listener>();
  set_up_log({.level = LogLevel::kOff});
  Notices notices;
  notices.add(std::make_shared<Thrower>());
  notices.add(listener);
  notices.tell(notice_of("x"));
  notices.flush();
  EXPECT_EQ(listener->heard().size(), 1U);
  set_up_log({});
}

TEST(NoticesThread, ManyThreadsTellConcurrently) {
  auto listener = std::make_shared<Listener>();
  Notices notices;
  notices.add(listener);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) notices.on_event({.kind = engine::Event::Kind::kWarning, .agent = "A"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  notices.flush();
  const auto heard = listener->heard();
  ASSERT_EQ(heard.size() + notices.dropped(), 2000U);
  for (std::size_t i = 0; i < heard.size(); ++i) EXPECT_EQ(heard[i].id, i + 1);
}

TEST(Notice, IsOneJsonObjectWithoutEmptyTexts) {
  Notice notice = notice_of("escalation");
  notice.id = 7;
  notice.time = 1'500ms;
  notice.agent = "a\"b\n\xff";
  notice.to = "boss";
  EXPECT_EQ(to_json(notice),
            R"({"id":7,"kind":"escalation","time":1500,"agent":"a\"b\n\ufffd","to":"boss","value":0})");
  notice.value = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(nlohmann::json::parse(to_json(notice))["value"].is_null());
}

TEST(LogSink, WarnsOfWhatAPersonShouldLookAtAndKeepsEverydayNoticesQuiet) {
  set_up_log({});
  const auto sink = make_log_sink();
  testing::internal::CaptureStderr();
  sink->on_notice(notice_of("violation"));
  sink->on_notice(notice_of("reload"));
  Notice abuse = notice_of("sustained_abuse");
  abuse.agent = "evil agent";
  sink->on_notice(abuse);
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
  EXPECT_THAT(out, HasSubstr(" info  reload "));
  EXPECT_THAT(out, HasSubstr(" warn  sustained_abuse agent=\"evil agent\""));
}

TEST(LogSink, WritesOneLineInTenSecondsForEachAgentAndPolicyThatLogs) {
  set_up_log({});
  const auto sink = make_log_sink();
  const auto lines = [&](const char* agent, const char* action, Nanos time) {
    Notice notice = notice_of("exceeded");
    notice.agent = agent;
    notice.policy_id = "p";
    notice.action = action;
    notice.time = time;
    testing::internal::CaptureStderr();
    sink->on_notice(notice);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(lines("A", "log", 100s), HasSubstr("left_out=0"));
  EXPECT_EQ(lines("A", "log", 101s), "");
  EXPECT_EQ(lines("A", "log", 109s), "");
  EXPECT_THAT(lines("B", "log", 109s), HasSubstr("agent=B"));
  EXPECT_THAT(lines("A", "log", 110s), HasSubstr("left_out=2"));
  EXPECT_EQ(lines("A", "warn", 200s), "") << "the asker is warned; there is nothing to log";
}

}  // namespace
}  // namespace headgate::observe

#include "base/wake_later.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <cstdint>
#include <thread>

namespace headgate::base {
namespace {

class WakeLaterTest : public ::testing::Test {
 protected:
  // How often it was written to since the last time.
  [[nodiscard]] std::uint64_t wakes() const {
    std::uint64_t count = 0;
    return ::read(event_->get(), &count, sizeof count) == sizeof count ? count : 0;
  }
  std::shared_ptr<const Descriptor> event_ = std::make_shared<Descriptor>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
};

TEST_F(WakeLaterTest, WithoutOneAWakeIsWrittenAtOnce) {
  write_wake(event_);
  write_wake(event_);
  EXPECT_EQ(wakes(), 2U);
}

TEST_F(WakeLaterTest, WithOneItIsWrittenOnceAtTheEnd) {
  {
    const WakeLater together;
    write_wake(event_);
    write_wake(event_);
    EXPECT_EQ(wakes(), 0U);
  }
  EXPECT_EQ(wakes(), 1U);
  write_wake(event_);
  EXPECT_EQ(wakes(), 1U) << "and from then on at once again";
}

TEST_F(WakeLaterTest, AnInnerOneIsForWhatHappensInside) {
  const WakeLater outer;
  {
    const WakeLater inner;
    write_wake(event_);
  }
  EXPECT_EQ(wakes(), 1U);
  write_wake(event_);
  EXPECT_EQ(wakes(), 0U);
}

TEST_F(WakeLaterTest, OtherThreadsWakeAsEver) {
  const WakeLater together;
  std::thread([this] { write_wake(event_); }).join();
  EXPECT_EQ(wakes(), 1U);
}

TEST_F(WakeLaterTest, TheEventLivesUntilItIsWritten) {
  const std::weak_ptr<const Descriptor> event = event_;
  {
    const WakeLater together;
    write_wake(event_);
    event_.reset();
    EXPECT_FALSE(event.expired());
  }
  EXPECT_TRUE(event.expired());
}

}  // namespace
}  // namespace headgate::base

#include "cli/run/pace.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headgate::cli {
namespace {

using namespace std::chrono_literals;

TEST(Pace, AFactorIsKeptBetweenBarelyRunningAndFullSpeed) {
  EXPECT_EQ(usable_factor(0.4), 0.4);
  EXPECT_EQ(usable_factor(0), kLeastFactor);
  EXPECT_EQ(usable_factor(-3), kLeastFactor);
  EXPECT_EQ(usable_factor(7), 1.0);
  EXPECT_EQ(usable_factor(std::nan("")), 1.0);
}

TEST(Pace, SlowerIsNicer) {
  EXPECT_EQ(niceness(1), 0);
  EXPECT_EQ(niceness(0.99), 5);
  EXPECT_EQ(niceness(0.61), 5);
  EXPECT_EQ(niceness(0.6), 10);
  EXPECT_EQ(niceness(0.01), 10);
}

TEST(Pace, RunningAndStoppedFillThePeriod) {
  EXPECT_EQ(duty(0.4).run, Nanos{40ms});
  EXPECT_EQ(duty(0.4).stop, Nanos{60ms});
  EXPECT_EQ(duty(0).run, Nanos{1ms});
  EXPECT_EQ(duty(1).stop, Nanos{0});
  for (int i = 1; i <= 100; ++i) {
    const Duty each = duty(i / 100.0);
    EXPECT_EQ(each.run + each.stop, kPacePeriod);
  }
}

TEST(Pace, AControlGroupIsCutByWhatCouldRunInIt) {
  EXPECT_EQ(cpu_max(0.5, 1, 8), "50000 100000");
  EXPECT_EQ(cpu_max(0.5, 4, 8), "200000 100000");
  EXPECT_EQ(cpu_max(0.5, 400, 8), "400000 100000");
  EXPECT_EQ(cpu_max(0.5, 0, 8), "50000 100000") << "one that sleeps now may run in a moment";
  EXPECT_EQ(cpu_max(0.001, 1, 1), "1000 100000") << "the kernel takes no less";
  EXPECT_EQ(cpu_max(1, 1, 8), "max 100000");
}

}  // namespace
}  // namespace headgate::cli

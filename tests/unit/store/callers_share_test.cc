// Cells of callers' own limits have a share, and make room for all others.
#include <gtest/gtest.h>

#include "core/compiled_limit.h"
#include "store/memory/memory_store.h"

namespace headgate::test {
namespace {

using store::Ask;
using store::Effect;
using store::MemoryStore;

constexpr Nanos kCallersNow = std::chrono::seconds{1'700'000'000};

class CallersShare : public testing::Test {
 protected:
  bool ask(std::uint64_t n, bool callers) {
    store::Charge charge;
    charge.key = {n * 0x9E3779B97F4A7C15U, n * 0xC2B2AE3D27D4EB4FU};
    charge.limit = &live_;
    charge.cost = 1;
    charge.callers = callers;
    core::Outcome outcome;
    return !store_.apply({&charge, 1}, Ask{kCallersNow, kCallersNow, Effect::kCharge}, {&outcome, 1}).store_full;
  }
  store::LiveLimit live_{core::compile(*Limit::gcra({.max_burst = 1, .count = 1, .period = std::chrono::hours{1000}}))};
  MemoryStore store_{{.max_cells = 200, .max_caller_cells = 50, .seed = 1}};
};

TEST_F(CallersShare, IsAllThatTheyGet) {
  std::uint64_t n = 1;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(ask(n++, true)) << i;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(ask(n++, true)) << i;
  EXPECT_EQ(store_.caller_cells(), 50U);
  EXPECT_EQ(store_.cells(), 50U);
}

TEST_F(CallersShare, MakesRoomForOthers) {
  std::uint64_t n = 1;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(ask(n++, true)) << i;
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(ask(n++, false)) << i;
  EXPECT_EQ(store_.caller_cells(), 0U);
  EXPECT_EQ(store_.cells(), 200U);
  EXPECT_FALSE(ask(n++, false)) << "that is all there is";
  EXPECT_FALSE(ask(n++, true)) << "callers push nobody out";
  EXPECT_EQ(store_.cells(), 200U);
  EXPECT_EQ(store_.caller_cells(), 0U);
}

TEST_F(CallersShare, IsClearedWithoutTouchingOthers) {
  std::uint64_t n = 1;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(ask(n++, true));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(ask(n++, false));
  EXPECT_EQ(store_.clear_callers(), 50U);
  EXPECT_EQ(store_.caller_cells(), 0U);
  EXPECT_EQ(store_.cells(), 100U);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(ask(n++, true));
}

}  // namespace
}  // namespace headgate::test

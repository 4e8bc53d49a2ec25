// Sessions belong to the agent that first used them.
#include "service/session_owners.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace headgate::service {
namespace {

TEST(SessionOwners, FirstUseDecides) {
  SessionOwners owners;
  EXPECT_TRUE(owners.belongs_to("s", "A"));
  EXPECT_TRUE(owners.belongs_to("s", "A"));
  EXPECT_FALSE(owners.belongs_to("s", "B"));
  EXPECT_TRUE(owners.belongs_to("t", "B"));
}

TEST(SessionOwners, ALookMakesNoOwner) {
  SessionOwners owners;
  EXPECT_TRUE(owners.may_belong_to("s", "A"));
  EXPECT_FALSE(owners.has_owner("s"));
  EXPECT_TRUE(owners.belongs_to("s", "B"));
  EXPECT_TRUE(owners.may_belong_to("s", "B"));
  EXPECT_FALSE(owners.may_belong_to("s", "A"));
}

TEST(SessionOwners, AtTheBoundANewSessionTakesAnOldOnesPlace) {
  SessionOwners owners;
  EXPECT_TRUE(owners.belongs_to("old", "A"));
  constexpr std::size_t kMany = SessionOwners::kBuckets * SessionOwners::kWays * 20;
  for (std::size_t i = 0; i < kMany; ++i) EXPECT_TRUE(owners.belongs_to(std::to_string(i), "B"));
  EXPECT_TRUE(owners.belongs_to("old", "C")) << "crowded out: it belongs to the next that uses it";
}

TEST(SessionOwners, ConcurrentFirstUsesHaveOneOwner) {
  SessionOwners owners;
  constexpr int kSessions = 2'000;
  std::array<std::array<bool, kSessions>, 2> mine{};
  const auto use = [&](std::size_t who) {
    for (int i = 0; i < kSessions; ++i) {
      mine[who][static_cast<std::size_t>(i)] = owners.belongs_to("s" + std::to_string(i), who == 0 ? "A" : "B");
    }
  };
  std::thread other([&] { use(1); });
  use(0);
  other.join();
  for (std::size_t i = 0; i < kSessions; ++i) EXPECT_NE(mine[0][i], mine[1][i]) << i;
}

}  // namespace
}  // namespace headgate::service

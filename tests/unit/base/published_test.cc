// A value that is replaced while it is read. ThreadSanitizer runs the threads too.
#include "base/published.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace headgate::base {
namespace {

// Counts how many of its kind are alive, and notices being read after its end.
struct Watched {
  static inline std::atomic<int> alive{0};
  explicit Watched(int number) : first(number), second(number) { ++alive; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() {
    first = second = -1;
    --alive;
  }
  int first;
  int second;
};
using Values = Published<Watched>;

TEST(Published, GivesTheLatestValue) {
  Values values(std::make_unique<Watched>(1));
  EXPECT_EQ(values.pin()->first, 1);
  EXPECT_TRUE(values.publish(std::make_unique<Watched>(2)));
  EXPECT_EQ(values.pin()->first, 2);
}

TEST(Published, APinKeepsItsValueAndEndsWithIt) {
  Values values(std::make_unique<Watched>(1));
  std::optional<Values::Pin> pin = values.pin();
  EXPECT_TRUE(values.publish(std::make_unique<Watched>(2)));
  values.reclaim();
  EXPECT_EQ(Watched::alive, 2);
  EXPECT_EQ((*pin)->first, 1);
  pin.reset();
  values.reclaim();
  EXPECT_EQ(Watched::alive, 1);
}

TEST(Published, AMovedPinHoldsOnce) {
  Values values(std::make_unique<Watched>(1));
  Values::Pin pin = values.pin();
  Values::Pin moved = std::move(pin);
  EXPECT_FALSE(pin);  // NOLINT(bugprone-use-after-move)
  pin = std::move(moved);
  EXPECT_EQ(pin->first, 1);
  pin = Values::Pin();
  EXPECT_TRUE(values.publish(std::make_unique<Watched>(2)));
  EXPECT_EQ(Watched::alive, 1) << "nobody pins the first any more";
}

TEST(Published, WithoutPinsOnlyTheCurrentValueIsAlive) {
  {
    Values values(std::make_unique<Watched>(0));
    for (int i = 1; i <= 1000; ++i) {
      ASSERT_TRUE(values.publish(std::make_unique<Watched>(i)));
      ASSERT_EQ(Watched::alive, 1);
    }
  }
  EXPECT_EQ(Watched::alive, 0);
}

TEST(Published, RefusesWhenTooManyOldValuesArePinnedAndRecovers) {
  Values values(std::make_unique<Watched>(0));
  std::vector<Values::Pin> pins;
  for (int i = 1; i < static_cast<int>(Values::kVersions); ++i) {
    pins.push_back(values.pin());
    ASSERT_TRUE(values.publish(std::make_unique<Watched>(i)));
  }
  EXPECT_FALSE(values.publish(std::make_unique<Watched>(-7)));
  EXPECT_EQ(values.pin()->first, static_cast<int>(Values::kVersions) - 1) << "the current one stays";
  for (int i = 0; i < static_cast<int>(pins.size()); ++i) EXPECT_EQ(pins[static_cast<std::size_t>(i)]->first, i);
  pins.erase(pins.begin() + 5);
  EXPECT_TRUE(values.publish(std::make_unique<Watched>(1000)));
  EXPECT_EQ(values.pin()->first, 1000);
}

TEST(PublishedThreads, NobodyEverReadsAValueThatIsGoneOrHalfThere) {
  {
    Values values(std::make_unique<Watched>(0));
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::atomic<int> reading{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 3; ++t) {
      readers.emplace_back([&] {
        int latest = 0;
        std::vector<Values::Pin> kept;
        for (int i = 0; !done.load(); ++i) {
          Values::Pin pin = values.pin();
          if (pin->first != pin->second || pin->first < latest) ++wrong;
          latest = pin->first;
          if (i % 7 == 0) kept.push_back(std::move(pin));
          if (kept.size() > 5) kept.clear();
          if (i == 100) ++reading;
        }
      });
    }
    while (reading.load() < 3) std::this_thread::yield();
    for (int i = 1; i <= 3000; ++i) {
      if (i % 100 == 0) std::this_thread::yield();
      if (!values.publish(std::make_unique<Watched>(i))) ++wrong;
      if (i % 16 == 0) values.reclaim();
    }
    done = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
    values.reclaim();
    EXPECT_EQ(Watched::alive, 1);
  }
  EXPECT_EQ(Watched::alive, 0);
}

}  // namespace
}  // namespace headgate::base

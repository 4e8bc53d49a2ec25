#include "cli/bench/histogram.h"

#include <algorithm>
#include <cmath>

namespace headgate::cli {
namespace {

TEST(LatencyHistogram, IsEmptyBeforeAnythingIsAdded) {
  const Histogram histogram;
  EXPECT_EQ(histogram.percentile(50), Nanos{0});
  EXPECT_EQ(histogram.max(), Nanos{0});
  EXPECT_EQ(histogram.mean(), Nanos{0});
}

TEST(LatencyHistogram, IsExactForSmallSpans) {
  Histogram histogram;
  for (int i = 1; i <= 100; ++i) histogram.add(Nanos{i});
  EXPECT_EQ(histogram.percentile(1), Nanos{1});
  EXPECT_EQ(histogram.percentile(50), Nanos{50});
  EXPECT_EQ(histogram.percentile(99), Nanos{99});
  EXPECT_EQ(histogram.percentile(100), Nanos{100});
  EXPECT_EQ(histogram.mean(), Nanos{50});
}

TEST(LatencyHistogram, TakesTheLargestAndNegativeSpans) {
  Histogram histogram;
  histogram.add(Nanos::max());
  histogram.add(Nanos{-5});
  EXPECT_EQ(histogram.percentile(50), Nanos{0});
  EXPECT_EQ(histogram.percentile(100), Nanos::max());
}

TEST(LatencyHistogram, NeverClaimsMoreThanTheLongest) {
  Histogram histogram;
  histogram.add(Nanos{1'000'001});
  EXPECT_EQ(histogram.percentile(99.9), Nanos{1'000'001});
}

RC_GTEST_PROP(LatencyHistogram, PercentilesAreWithinOneIn128OfTheSortedSpans, ()) {
  const auto spans = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 60'000'000'000)));
  Histogram one;
  Histogram two;
  for (std::size_t i = 0; i < spans.size(); ++i) (i % 2 == 0 ? one : two).add(Nanos{spans[i]});
  one.merge(two);
  std::vector<std::int64_t> sorted = spans;
  std::sort(sorted.begin(), sorted.end());
  RC_ASSERT(one.total() == sorted.size());
  RC_ASSERT(one.max().count() == sorted.back());
  for (const double percent : {0.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(static_cast<double>(sorted.size()) * percent / 100));
    const std::int64_t truth = sorted[std::max<std::size_t>(rank, 1) - 1];
    const std::int64_t told = one.percentile(percent).count();
    RC_ASSERT(told >= truth);
    RC_ASSERT(told - truth <= truth / 128);
  }
}

}  // namespace
}  // namespace headgate::cli

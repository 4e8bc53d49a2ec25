// Latencies, counted in buckets that grow with them: any percentile is known to within 1/128, at a fixed 57 kB.
//
// Not for sharing between threads: each has its own, and they are put together at the end. add() costs a few
// nanoseconds and never allocates.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "headgate/clock.h"

namespace headgate::cli {

class Histogram {
 public:
  static constexpr unsigned kSubBits = 7;

  void add(Nanos span) noexcept {
    const std::uint64_t value = span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0;
    ++counts_[index(value)];
    ++total_;
    sum_ += static_cast<double>(value);
    max_ = std::max(max_, value);
  }
  void merge(const Histogram& other) noexcept {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
  }

  // The least span that so many percent did not exceed: never less than the truth, and at most 1/128 more. 0 if there
  // is nothing.
  [[nodiscard]] Nanos percentile(double percent) const noexcept;
  [[nodiscard]] Nanos max() const noexcept { return Nanos{static_cast<std::int64_t>(max_)}; }
  [[nodiscard]] Nanos mean() const noexcept {
    return Nanos{total_ == 0 ? 0 : static_cast<std::int64_t>(sum_ / static_cast<double>(total_))};
  }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

 private:
  // Exact below 2^(kSubBits + 1); above, the highest kSubBits + 1 bits.
  static constexpr unsigned shift_of(std::uint64_t value) noexcept {
    const unsigned width = static_cast<unsigned>(std::bit_width(value));
    return width > kSubBits + 1 ? width - kSubBits - 1 : 0;
  }
  static constexpr std::size_t index(std::uint64_t value) noexcept {
    const unsigned shift = shift_of(value);
    return (std::size_t{shift} << kSubBits) + (value >> shift);
  }
  // The largest value that is counted there.
  static constexpr std::uint64_t upper_edge(std::size_t index) noexcept {
    constexpr std::size_t kSub = std::size_t{1} << kSubBits;
    if (index < 2 * kSub) return index;
    const std::size_t shift = index / kSub - 1;
    return ((index - shift * kSub + 1) << shift) - 1;
  }

  static constexpr std::size_t kBuckets = (std::size_t{63 - kSubBits} << kSubBits) + (std::size_t{2} << kSubBits);
  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t total_ = 0;
  double sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace headgate::cli

// What is done to an entry before it is queued: after that no database has a reason to refuse it.
#pragma once

#include "headgate/result.h"
#include "quota/ledger.h"

namespace headgate::quota {

// The most that any sum of a row of usage may reach. Sums stay there, so that no client can bring one to overflow and
// the whole batch with it to a halt.
inline constexpr std::int64_t kMostUsage = 1'000'000'000'000'000;
// The columns of usage that are summed and stop there.
inline constexpr std::array kUsageSums{"commands", "refused",  "would_refuse", "throttled",
                                       "runs",     "failures", "duration_ms",  "cpu_ms"};

// Repairs texts, cuts errors, brings numbers into range. An Error: a name is missing or too long, or the hash is none.
[[nodiscard]] Result<void> make_fit(Ledger::Entry& entry);

// What one run adds to the usage of its key.
[[nodiscard]] Usage usage_of(const Execution& execution) noexcept;

[[nodiscard]] constexpr std::int64_t to_ms(Nanos time) noexcept { return time.count() / 1'000'000; }
// The first whole millisecond that is not before it.
[[nodiscard]] constexpr std::int64_t to_ms_up(Nanos time) noexcept {
  return time.count() / 1'000'000 + (time.count() % 1'000'000 > 0 ? 1 : 0);
}
[[nodiscard]] constexpr Nanos from_ms(std::int64_t ms) noexcept { return std::chrono::milliseconds{ms}; }

}  // namespace headgate::quota

// Quotas of one user lie side by side in the memory store: a charge list of them must count as any other does.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <vector>

#include "engine/allowances.h"
#include "support/cells.h"
#include "support/draws.h"

namespace headgate::test {
namespace {

using core::compile;
using core::Outcome;
using store::Charge;
using store::Effect;
using store::LiveLimit;
using store::MemoryStore;

// A limit for all users, hour, day and week of each user, and the day of each user's session.
constexpr std::size_t kQuotaLimits = 5;
constexpr std::array<Period, kQuotaLimits> kQuotaPeriods{Period::kHour, Period::kHour, Period::kDay, Period::kWeek,
                                                         Period::kDay};

struct AdmittedQuota {
  int user;
  bool by_everybody;  // the limit for all users was part of the list
  Units cost;
  Nanos at;
};

Limit quota_of(std::size_t which, Units limit) {
  if (which == 0) return must(Limit::fixed_window({limit, 1h, 0}));
  return must(Limit::quota({limit, kQuotaPeriods[which], "UTC", 0}));
}

base::Hash128 quota_key(const MemoryStore& store, std::size_t which, int user) {
  if (which == 0) return store.hash("everybody");
  const std::string name = name_of(static_cast<std::size_t>(user));
  if (which == kQuotaLimits - 1) return store.hash(name + " in a session");
  return Allowances::cell(store.hash(name), which);
}

// Users come and go for hours and days, so that some of their cells are dropped and made anew in another order;
// numbers change meanwhile.
RC_GTEST_PROP(QuotaPlans, CountLikeAListOfWhatWasAdmitted, ()) {
  MemoryStore store({.max_cells = *rc::gen::element<std::size_t>(100, 1000, 100'000), .seed = 7});
  std::array<Units, kQuotaLimits> limits;
  std::array<std::unique_ptr<LiveLimit>, kQuotaLimits> lives;
  std::array<core::Calendar, kQuotaLimits> calendars;
  for (std::size_t i = 0; i < kQuotaLimits; ++i) {
    limits[i] = *rc::gen::inRange<Units>(1, 12);
    lives[i] = std::make_unique<LiveLimit>(compile(quota_of(i, limits[i])));
    calendars[i] = *core::Calendar::make(kQuotaPeriods[i], "UTC");
  }
  std::vector<AdmittedQuota> admitted;
  Nanos now = kStart;
  const int steps = *rc::gen::inRange(1, 80);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::element<Nanos>(0s, 1s, 1s, 20min, 1h, 25h);
    if (*rc::gen::inRange(0, 8) == 0) store.maintain(1000, now);
    if (*rc::gen::inRange(0, 16) == 0) {
      const auto which = *rc::gen::inRange<std::size_t>(0, kQuotaLimits);
      limits[which] = *rc::gen::inRange<Units>(1, 12);
      store.change(*lives[which], compile(quota_of(which, limits[which])), OnChange::kKeepUnits);
    }
    const int user = *rc::gen::inRange(0, 3);
    const Units cost = *rc::gen::inRange<Units>(1, 4);
    const std::size_t first = *rc::gen::inRange<std::size_t>(0, 2);  // with the limit for all users, and without
    std::array<Units, kQuotaLimits> used{};
    for (std::size_t i = 0; i < kQuotaLimits; ++i) {
      for (const AdmittedQuota& each : admitted) {
        const bool counts = (i == 0 ? each.by_everybody : each.user == user) &&
                            calendars[i].period_at(each.at).end == calendars[i].period_at(now).end;
        if (counts) used[i] += each.cost;
      }
    }
    std::vector<Charge> charges;
    bool fits = true;
    for (std::size_t i = first; i < kQuotaLimits; ++i) {
      charges.push_back({quota_key(store, i, user), lives[i].get(), cost, "", i == first});
      fits = fits && used[i] + cost <= limits[i];
    }
    std::vector<Outcome> outcomes(charges.size());
    const store::Applied applied = store.apply(charges, {now, now, Effect::kCharge}, outcomes);
    RC_ASSERT((applied.wait == Nanos{0}) == fits);
    for (std::size_t i = first; i < kQuotaLimits && fits; ++i) {
      RC_ASSERT(outcomes[i - first].limit == limits[i]);
      RC_ASSERT(outcomes[i - first].remaining == limits[i] - used[i] - cost);
      RC_ASSERT(outcomes[i - first].reset_after == calendars[i].period_at(now).end - now);
    }
    if (fits) admitted.push_back({user, first == 0, cost, now});
  }
}

}  // namespace
}  // namespace headgate::test

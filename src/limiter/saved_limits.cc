#include "limiter/saved_limits.h"

#include <algorithm>
#include <cassert>
#include <sstream>

namespace headgate {
namespace {

Error bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

// Makes a limit from the numbers that every strategy shares.
Result<Limit> rebuild(Strategy strategy, Units limit, Units burst, Rate rate, Period period,
                      const std::string& timezone) {
  if (limit < 1) return bad("limit must be at least 1, got " + std::to_string(limit));
  switch (strategy) {
    case Strategy::kTokenBucket: return Limit::token_bucket({limit, rate, burst});
    case Strategy::kGcra: return Limit::gcra({limit - 1, rate.units, rate.per, burst});
    case Strategy::kSlidingWindow: return Limit::sliding_window({limit, rate.per, burst});
    case Strategy::kSlidingWindowCounter: return Limit::sliding_window_counter({limit, rate.per, burst});
    case Strategy::kFixedWindow: return Limit::fixed_window({limit, rate.per, burst});
    case Strategy::kLeakyBucket: return Limit::leaky_bucket({rate, limit - 1});
    case Strategy::kConcurrency: return Limit::concurrency({limit, rate.per, burst});
    case Strategy::kQuota: return Limit::quota({limit, period, timezone, burst});
  }
  return bad("strategy must be between 0 and 7, got " + std::to_string(static_cast<int>(strategy)));
}

}  // namespace

SavedLimits::SavedLimits(const std::vector<Limit>& limits) {
  for (const Limit& limit : limits) {
    Entry entry;
    entry.versions.push_back({limit});
    entry.live = std::make_unique<store::LiveLimit>(core::compile(limit));
    entries_.push_back(std::move(entry));
  }
}

bool SavedLimits::has(Strategy strategy) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.live->strategy() == strategy; });
}

Limit SavedLimits::description(std::size_t index) const {
  const std::lock_guard guard(mutex_);
  return entries_[index].versions.back().limit;
}

Result<void> SavedLimits::change(store::MemoryStore& store, const Limit& limit, OnChange how, std::size_t index) {
  if (index >= entries_.size()) {
    return bad("index must be between 0 and " + std::to_string(entries_.size() - 1) + ", got " + std::to_string(index));
  }
  Entry& entry = entries_[index];
  if (limit.strategy() != entry.live->strategy()) {
    return bad(std::string("strategy must stay ") + to_string(entry.live->strategy()) + ", got " +
               to_string(limit.strategy()));
  }
  const std::lock_guard guard(mutex_);
  change_locked(store, entry, limit, how);
  return {};
}

void SavedLimits::change_locked(store::MemoryStore& store, Entry& entry, const Limit& limit, OnChange how) {
  store.change(*entry.live, core::compile(limit), how);
  entry.versions.push_back({limit, how});
  ++entry.generation;
  if (entry.versions.size() > store::LiveLimit::kGenerations) entry.versions.pop_front();
}

std::string SavedLimits::write() const {
  const std::lock_guard guard(mutex_);
  std::ostringstream text;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const std::size_t count = entry.versions.size();
    for (std::size_t v = 0; v < count; ++v) {
      const Version& version = entry.versions[v];
      text << i << ' ' << entry.generation - (count - 1 - v) << ' ' << static_cast<int>(version.how) << ' '
           << static_cast<int>(version.limit.strategy()) << ' ' << version.limit.limit() << ' '
           << version.limit.burst_allowance() << ' ' << version.limit.rate().units << ' '
           << version.limit.rate().per.count() << ' ' << static_cast<int>(version.limit.period()) << ' '
           << (version.limit.timezone().empty() ? "-" : version.limit.timezone()) << '\n';
    }
  }
  return text.str();
}

Result<void> SavedLimits::read(store::MemoryStore& store, std::string_view text) {
  assert(store.cells() == 0);
  const std::lock_guard guard(mutex_);
  std::vector<Entry> saved(entries_.size());
  std::istringstream lines{std::string(text)};
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::size_t index = 0;
    std::uint32_t generation = 0;
    int how = 0;
    int strategy = 0;
    Units limit = 0;
    Units burst = 0;
    Units units = 0;
    std::int64_t per = 0;
    int period = 0;
    std::string timezone;
    fields >> index >> generation >> how >> strategy >> limit >> burst >> units >> per >> period >> timezone;
    if (!fields || how < 0 || how > 2 || strategy < 0 || strategy >= kStrategyCount || period < 0 || period > 4) {
      return Error{ErrorCode::kCorrupt, "a limit in the snapshot cannot be read: " + line};
    }
    auto rebuilt = rebuild(static_cast<Strategy>(strategy), limit, burst, {units, Nanos{per}},
                           static_cast<Period>(period), timezone);
    if (!rebuilt) return Error{ErrorCode::kCorrupt, "a limit in the snapshot is not valid: " + rebuilt.error().message};
    if (index >= entries_.size() || rebuilt->strategy() != entries_[index].live->strategy()) {
      return bad("the snapshot must be of a limiter with the same strategies, got " + rebuilt->describe() +
                 " as limit " + std::to_string(index));
    }
    Entry& entry = saved[index];
    if (!entry.versions.empty() && generation != entry.generation + 1) {
      return Error{ErrorCode::kCorrupt, "the limits in the snapshot are not in order: " + line};
    }
    entry.generation = generation;
    entry.versions.push_back({*rebuilt, static_cast<OnChange>(how)});
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const Entry& entry = saved[i];
    if (entry.versions.empty()) {
      return bad("the snapshot must be of a limiter with " + std::to_string(entries_.size()) +
                 " limits, got none for limit " + std::to_string(i));
    }
    // All that a live limit remembers, no more and no less: it would look for the rest.
    const std::uint64_t remembered =
        std::min<std::uint64_t>(std::uint64_t{entry.generation} + 1, store::LiveLimit::kGenerations);
    if (entry.versions.size() != remembered) {
      return Error{ErrorCode::kCorrupt, "limit " + std::to_string(i) + " in the snapshot must have " +
                                            std::to_string(remembered) + " versions, got " +
                                            std::to_string(entry.versions.size())};
    }
  }

  for (std::size_t i = 0; i < saved.size(); ++i) {
    const Entry& entry = saved[i];
    const Limit wanted = entries_[i].versions.back().limit;
    const auto oldest = static_cast<std::uint32_t>(entry.generation + 1 - entry.versions.size());
    std::vector<store::LiveLimit::Entry> past;
    for (const Version& version : entry.versions) past.push_back({core::compile(version.limit), version.how});
    entries_[i].live->take_over(oldest, past);
    entries_[i].versions = entry.versions;
    entries_[i].generation = entry.generation;
    if (!(entry.versions.back().limit == wanted)) {
      change_locked(store, entries_[i], wanted, OnChange::kKeepFraction);
    }
  }
  return {};
}

}  // namespace headgate

#include "control/violations.h"

#include <bit>
#include <cassert>

namespace headgate::control {
namespace {

constexpr std::size_t kMaxShownName = 128;
constexpr std::size_t kMostShards = 32;       // configure() holds all their locks at once
constexpr std::size_t kLeastPerShard = 1024;  // with fewer, the choice of whom to evict would be poor

// Cut where a character ends, so that it can be shown.
std::string shown(std::string_view name) {
  if (name.size() <= kMaxShownName) return std::string(name);
  std::size_t size = kMaxShownName;
  while (size > kMaxShownName - 4 && (static_cast<unsigned char>(name[size]) & 0xC0U) == 0x80U) --size;
  return std::string(name.substr(0, size));
}

std::size_t shards_for(std::size_t max_agents) {
  return std::bit_floor(std::clamp(max_agents / kLeastPerShard, std::size_t{1}, kMostShards));
}

// Past this instant the entry decides nothing: no back-off, no part in sustained abuse.
bool forgettable(const BackoffState& state, const BackoffSettings& settings, Nanos now) {
  return clamped(now) - state.last >= std::max(settings.quiet, kSustainedWindow);
}

bool worse(const Offender& a, const Offender& b) {
  if (a.total != b.total) return a.total > b.total;
  if (a.last != b.last) return a.last > b.last;
  return a.agent < b.agent;
}

}  // namespace

std::uint32_t Violations::Entry::recent(Nanos now) const noexcept {
  std::uint32_t count = 0;
  const auto kept = static_cast<std::size_t>(std::min<std::uint64_t>(total, kSustainedCount));
  for (std::size_t i = 0; i < kept; ++i) count += clamped(now) - instants[i] < kSustainedWindow ? 1 : 0;
  return count;
}

Violations::Violations(const Settings& settings)
    : seeds_{settings.seed, base::hash128("user", settings.seed).low, base::hash128("address", settings.seed).low,
             base::hash128("unidentified", settings.seed).low},
      shard_mask_(shards_for(settings.max_agents) - 1),
      max_per_shard_(std::max<std::size_t>(settings.max_agents / (shard_mask_ + 1), 1)),
      shards_(std::make_unique<Shard[]>(shard_mask_ + 1)) {
  for (std::size_t i = 0; i <= shard_mask_; ++i) shards_[i].backoff = settings.backoff;
}

Violations::Recorded Violations::record(const Subject& subject, Nanos now) {
  const base::Hash128 id = id_of(subject);
  Shard& shard = shard_of(id);
  const std::lock_guard guard(shard.mutex);
  Entry& entry = place(shard, id, subject, now);
  entry.backoff = violated(entry.backoff, shard.backoff, now);
  if (entry.backoff.consecutive == 1) entry.notified = false;
  // Instants that come out of order stand as if they had come with the latest.
  entry.instants[entry.total % kSustainedCount] = entry.backoff.last;
  ++entry.total;
  shard.latest = std::max(shard.latest, entry.backoff.last);
  raise_active_until(entry.backoff.last + shard.backoff.quiet);

  Recorded recorded{.retry_after = delay(entry.backoff, shard.backoff)};
  if (!entry.notified && entry.total - entry.notified_at >= kSustainedCount &&
      entry.recent(entry.backoff.last) == kSustainedCount) {
    entry.notified = true;
    entry.notified_at = entry.total;
    recorded.sustained = true;
  }
  return recorded;
}

// The agent's entry, made if need be, as the most recently violating one.
Violations::Entry& Violations::place(Shard& shard, const base::Hash128& id, const Subject& subject, Nanos now) {
  if (const auto found = shard.index.find(id); found != shard.index.end()) {
    shard.entries.splice(shard.entries.end(), shard.entries, found->second);
    return *found->second;
  }
  if (shard.entries.size() >= max_per_shard_) {
    if (active(shard.entries.front().backoff, shard.backoff, now)) evicted_.fetch_add(1, std::memory_order_relaxed);
    erase_first(shard);
  }
  std::list<Entry> made;
  Entry& entry = made.emplace_back();
  entry.id = id;
  entry.name = shown(subject.name);
  entry.kind = subject.kind;
  shard.index.emplace(id, made.begin());
  shard.entries.splice(shard.entries.end(), made);
  agents_.fetch_add(1, std::memory_order_relaxed);
  return entry;
}

void Violations::erase_first(Shard& shard) {
  shard.index.erase(shard.entries.front().id);
  shard.entries.pop_front();
  agents_.fetch_sub(1, std::memory_order_relaxed);
}

void Violations::raise_active_until(Nanos instant) noexcept {
  std::int64_t known = active_until_.load(std::memory_order_relaxed);
  while (known < instant.count() &&
         !active_until_.compare_exchange_weak(known, instant.count(), std::memory_order_relaxed)) {
  }
}

template <class Answer, class Ask>
Answer Violations::look(const Subject& subject, Nanos now, Answer otherwise, const Ask& ask) const noexcept {
  if (now.count() >= active_until_.load(std::memory_order_relaxed)) return otherwise;
  const base::Hash128 id = id_of(subject);
  const Shard& shard = shard_of(id);
  const std::lock_guard guard(shard.mutex);
  const auto found = shard.index.find(id);
  return found == shard.index.end() ? otherwise : ask(found->second->backoff, shard.backoff);
}

bool Violations::rate_limited(const Subject& subject, Nanos now) const noexcept {
  return look(subject, now, false,
              [&](const BackoffState& state, const BackoffSettings& settings) { return active(state, settings, now); });
}

Nanos Violations::blocked_for(const Subject& subject, Nanos now) const noexcept {
  return look(subject, now, Nanos{0}, [&](const BackoffState& state, const BackoffSettings& settings) {
    return std::max(blocked_until(state, settings) - clamped(now), Nanos{0});
  });
}

std::vector<Offender> Violations::top(std::size_t count, Nanos now) const {
  // A heap whose front is the least bad of those chosen so far, so that few names are copied.
  std::vector<Offender> chosen;
  if (count == 0) return chosen;
  for (std::size_t i = 0; i <= shard_mask_; ++i) {
    const Shard& shard = shards_[i];
    const std::lock_guard guard(shard.mutex);
    for (const Entry& entry : shard.entries) {
      if (!active(entry.backoff, shard.backoff, now)) continue;
      if (chosen.size() == count && entry.total < chosen.front().total) continue;
      chosen.push_back(
          {entry.name, entry.backoff.consecutive, entry.recent(now), entry.total, entry.backoff.last, entry.kind});
      std::push_heap(chosen.begin(), chosen.end(), worse);
      if (chosen.size() <= count) continue;
      std::pop_heap(chosen.begin(), chosen.end(), worse);
      chosen.pop_back();
    }
  }
  std::sort_heap(chosen.begin(), chosen.end(), worse);
  return chosen;
}

Violations::Totals Violations::totals() const noexcept {
  return {agents_.load(std::memory_order_relaxed), evicted_.load(std::memory_order_relaxed)};
}

bool Violations::forgive(const Subject& subject) {
  const base::Hash128 id = id_of(subject);
  Shard& shard = shard_of(id);
  const std::lock_guard guard(shard.mutex);
  const auto found = shard.index.find(id);
  if (found == shard.index.end()) return false;
  shard.entries.erase(found->second);
  shard.index.erase(found);
  agents_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

std::size_t Violations::forget_quiet(Nanos now, std::size_t most) {
  std::size_t forgotten = 0;
  for (std::size_t visited = 0; visited <= shard_mask_ && forgotten < most; ++visited) {
    Shard& shard = shards_[next_shard_.fetch_add(1, std::memory_order_relaxed) & shard_mask_];
    const std::lock_guard guard(shard.mutex);
    while (forgotten < most && !shard.entries.empty() &&
           forgettable(shard.entries.front().backoff, shard.backoff, now)) {
      erase_first(shard);
      ++forgotten;
    }
  }
  return forgotten;
}

void Violations::configure(const BackoffSettings& backoff) {
  assert(validate(backoff).has_value());
  // Shard by shard, so that no denial waits for a look at everybody. The end of the last quiet period only ever rises:
  // too late an instant costs a look at an agent, too early a one would let it through.
  for (std::size_t i = 0; i <= shard_mask_; ++i) {
    Shard& shard = shards_[i];
    const std::lock_guard guard(shard.mutex);
    shard.backoff = backoff;
    if (!shard.entries.empty()) raise_active_until(shard.latest + backoff.quiet);
  }
}

}  // namespace headgate::control

#include "observe/traffic.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>
#include <unordered_map>

#include "base/hash.h"
#include "base/spin_lock.h"
#include "base/thread_slot.h"
#include "observe/agent_table.h"
#include "observe/history.h"

namespace headgate::observe {
namespace {

constexpr Nanos kAgentsFor = std::chrono::hours{24};
// A reader holds a thread's lock for so many agents at a time, a few microseconds.
constexpr std::size_t kReadAtOnce = 256;
// How often a reader begins again because agents were dropped meanwhile.
constexpr int kMostTries = 3;

// 2^(7+i) ns and what is below it.
int bucket_of(Nanos took) noexcept {
  const auto nanos = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 1));
  return std::clamp(static_cast<int>(std::bit_width(nanos - 1)) - 7, 0, Histogram::kBuckets - 1);
}

// What one thread has counted. The lock is its own: only readers, now and then, make it wait.
struct alignas(64) Part {
  mutable base::SpinLock lock;
  std::array<Traffic::ByResult, kProtocolCount> by_protocol{};
  std::array<std::uint64_t, Histogram::kBuckets> took{};
  std::int64_t took_nanos = 0;
  AgentTable agents{Traffic::kMostAgents};
  alignas(64) std::atomic<unsigned> until_measured{0};
  std::atomic<Nanos::rep> measured_at{0};
};

}  // namespace

const char* to_string(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::kHttp: return "http";
    case Protocol::kGate: return "gate";
    case Protocol::kWebSocket: return "websocket";
    case Protocol::kResp: return "resp";
    case Protocol::kGrpc: return "grpc";
  }
  return "unknown";
}

struct Traffic::Impl {
  ~Impl() {
    for (auto& part : parts) delete part.load();
  }
  // This thread's own; none if there is no memory for it.
  Part* part() noexcept {
    auto& place = parts[base::thread_slot()];
    Part* found = place.load(std::memory_order_acquire);
    return found != nullptr ? found : make_part(place);
  }
  static Part* make_part(std::atomic<Part*>& place) noexcept {
    auto* fresh = new (std::nothrow) Part;
    if (fresh == nullptr) return nullptr;
    Part* expected = nullptr;
    if (place.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) return fresh;
    delete fresh;
    return expected;
  }
  template <class Visit>
  void for_each_part(Visit visit) const {
    for (const auto& place : parts) {
      if (const Part* part = place.load(std::memory_order_acquire)) visit(*part);
    }
  }

  std::array<std::atomic<Part*>, base::kThreadSlots> parts{};
  const base::Hasher hasher{base::random_seed()};
  std::atomic<std::int64_t> newest{0};  // the wall clock of the last tick, for what "lately" is

  mutable std::mutex mutex;  // guards all below
  ByResult at_last_tick;
  History history;
};

Traffic::Traffic() : impl_(std::make_unique<Impl>()) {}
Traffic::~Traffic() = default;

bool Traffic::measures(Nanos now) noexcept {
  Part* part = impl_->part();
  if (part == nullptr) return false;
  const unsigned left = part->until_measured.load(std::memory_order_relaxed);
  const bool due =
      left == 0 || now.count() - part->measured_at.load(std::memory_order_relaxed) >= kMeasureAfter.count();
  part->until_measured.store(due ? kMeasureEvery - 1 : left - 1, std::memory_order_relaxed);
  if (due) part->measured_at.store(now.count(), std::memory_order_relaxed);
  return due;
}

void Traffic::add(const Answered& answered, Nanos wall) noexcept {
  Part* part = impl_->part();
  if (part == nullptr) return;
  const base::Hash128 hash = answered.agent.empty() ? base::Hash128{} : impl_->hasher(answered.agent);
  const std::lock_guard guard(part->lock);
  ByResult& counts = part->by_protocol[static_cast<std::size_t>(answered.protocol)];
  ++(answered.error ? counts.errors : answered.allowed ? counts.allowed : counts.denied);
  if (answered.took >= Nanos{0}) {
    ++part->took[static_cast<std::size_t>(bucket_of(answered.took))];
    part->took_nanos += answered.took.count();
  }
  if (answered.agent.empty() || answered.error) return;
  try {
    part->agents.add(hash, answered.agent, answered.allowed, wall);
  } catch (...) {  // no memory for one more name
  }
}

std::array<Traffic::ByResult, kProtocolCount> Traffic::totals() const {
  std::array<ByResult, kProtocolCount> sum{};
  impl_->for_each_part([&](const Part& part) {
    const std::lock_guard guard(part.lock);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i].allowed += part.by_protocol[i].allowed;
      sum[i].denied += part.by_protocol[i].denied;
      sum[i].errors += part.by_protocol[i].errors;
    }
  });
  return sum;
}

Histogram Traffic::latency() const {
  Histogram sum;
  impl_->for_each_part([&](const Part& part) {
    const std::lock_guard guard(part.lock);
    for (std::size_t i = 0; i < sum.counts.size(); ++i) {
      sum.counts[i] += part.took[i];
      sum.total += part.took[i];
    }
    sum.sum_seconds += static_cast<double>(part.took_nanos) * 1e-9;
  });
  return sum;
}

namespace {

struct LowHalf {
  std::size_t operator()(const base::Hash128& hash) const noexcept { return hash.low; }
};
using Merged = std::unordered_map<base::Hash128, AgentTraffic, LowHalf>;

void merge(const AgentCounts& counts, AgentTraffic& into) {
  into.allowed += counts.allowed;
  into.denied += counts.denied;
  into.last_seen = std::max(into.last_seen, counts.last_seen);
}

struct Named {
  AgentCounts counts;
  std::string name;
};

// A copy of one thread's agents, taken in small pieces so that the thread hardly waits.
std::vector<Named> copy_agents(const Part& part) {
  std::vector<Named> copied;
  std::uint64_t generation = 0;
  int tries = 0;
  for (bool whole = false; !whole;) {
    std::vector<Named> piece;
    piece.reserve(kReadAtOnce);
    const std::lock_guard guard(part.lock);
    if (!copied.empty() && part.agents.generation() != generation && ++tries < kMostTries) copied.clear();
    generation = part.agents.generation();
    const std::size_t end = std::min(part.agents.size(), copied.size() + kReadAtOnce);
    for (std::size_t place = copied.size(); place < end; ++place) {
      piece.push_back({part.agents.counts(place), part.agents.name(place)});
    }
    whole = end >= part.agents.size();
    copied.insert(copied.end(), std::make_move_iterator(piece.begin()), std::make_move_iterator(piece.end()));
  }
  return copied;
}

}  // namespace

std::vector<AgentTraffic> Traffic::agents(std::size_t most) const {
  Merged merged;
  impl_->for_each_part([&](const Part& part) {
    for (Named& named : copy_agents(part)) {
      AgentTraffic& into = merged[named.counts.hash];
      merge(named.counts, into);
      if (into.agent.empty()) into.agent = std::move(named.name);
    }
  });
  const Nanos since = Nanos{impl_->newest.load(std::memory_order_relaxed)} - kAgentsFor;
  std::vector<AgentTraffic> all;
  all.reserve(merged.size());
  for (auto& [hash, agent] : merged) {
    if (agent.last_seen > since) all.push_back(std::move(agent));
  }
  const auto busier = [](const AgentTraffic& a, const AgentTraffic& b) {
    const std::uint64_t of_a = a.allowed + a.denied;
    const std::uint64_t of_b = b.allowed + b.denied;
    return of_a != of_b ? of_a > of_b : a.agent < b.agent;
  };
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(most, all.size()));
  std::partial_sort(all.begin(), end, all.end(), busier);
  all.erase(end, all.end());
  return all;
}

AgentTraffic Traffic::agent(std::string_view name) const {
  AgentTraffic sum;
  sum.agent = name;
  if (name.empty()) return sum;
  const base::Hash128 hash = impl_->hasher(name);
  impl_->for_each_part([&](const Part& part) {
    const std::lock_guard guard(part.lock);
    if (const AgentCounts* counts = part.agents.find(hash)) merge(*counts, sum);
  });
  return sum;
}

void Traffic::tick(Nanos wall) {
  ByResult now;
  for (const ByResult& of : totals()) {
    now.allowed += of.allowed;
    now.denied += of.denied;
    now.errors += of.errors;
  }
  impl_->newest.store(wall.count(), std::memory_order_relaxed);
  const std::lock_guard guard(impl_->mutex);
  Moment moment;
  moment.allowed = now.allowed - impl_->at_last_tick.allowed;
  moment.denied = now.denied - impl_->at_last_tick.denied;
  moment.errors = now.errors - impl_->at_last_tick.errors;
  impl_->at_last_tick = now;
  impl_->history.add(moment, wall);
}

Traffic::Past Traffic::history(Nanos since, Nanos step) const {
  const std::lock_guard guard(impl_->mutex);
  return {impl_->history.step_of(std::max(since, Nanos{0}), step), impl_->history.since(since, step)};
}

}  // namespace headgate::observe

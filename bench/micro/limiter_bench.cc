// What a check costs, beside the floor and the rivals, in one run over the same keys.
//
// Names are group/contender. The report (bench/report.py) divides one by another; bench/README.md says what and why.
#include <benchmark/benchmark.h>

#include <array>
#include <thread>

#include "micro/course.h"

namespace headgate::bench {
namespace {

constexpr KeyRange kHot{0, 1'000};
constexpr KeyRange kMillion{0, 1'000'000};
constexpr KeyRange kOne{0, 1};
constexpr int kHotRounds = 16;
constexpr int kMillionRounds = 4;

// Built once each, and shared by all contenders.
const Indexed& hot_keys() {
  static const Indexed keys(kHot, kHotRounds);
  return keys;
}
const Indexed& one_key() {
  static const Indexed keys(kOne, 1);
  return keys;
}
const AccessOrder& million_keys() {
  static const AccessOrder keys(kMillion, kMillionRounds);
  return keys;
}
const Indexed& million_indexed_keys() {
  static const Indexed keys(kMillion, kMillionRounds);
  return keys;
}

template <class Keys, class Contender>
std::unique_ptr<Course<Keys, Contender>> course(Contender contender, KeyRange range, const Keys& keys,
                                                const Pace& pace = {}) {
  return std::make_unique<Course<Keys, Contender>>(std::move(contender), range,
                                                   std::vector<Walk<Keys>>{{keys, pace.step}}, pace);
}

// The same contenders over any set of keys.
template <class Keys>
void add_contenders(const std::string& group, KeyRange range, const Keys& (*keys)()) {
  add(group + "/floor_absl_find", [=] { return course(Floor{}, range, keys()); });
  add(group + "/headgate", [=] { return course(roomy_headgate(), range, keys()); });
  add(group + "/rival_mutex_map", [=] { return course(MutexMapRival(), range, keys()); });
  add(group + "/rival_sharded_map", [=] { return course(ShardedMapRival(), range, keys()); });
}

void clock_steady(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(std::chrono::steady_clock::now());
  state.SetItemsProcessed(state.iterations());
}
void clock_system(benchmark::State& state) {
  const Clock& clock = SystemClock::shared();
  for (auto _ : state) benchmark::DoNotOptimize(clock.now());
  state.SetItemsProcessed(state.iterations());
}

// Batches as a pipelined protocol would hand them over; filling them is part of what is measured.
template <class Keys>
void measure_batches(benchmark::State& state, Course<Keys, Headgate>& course) {
  constexpr std::size_t kBatch = 32;
  const Pinned pinned(0);
  Walk<Keys> walk = course.walks[0];
  std::array<Request, kBatch> requests;
  std::array<Decision, kBatch> decisions;
  std::int64_t denied = 0;
  const std::uint64_t allocations_before = allocations();
  for (auto _ : state) {
    for (Request& request : requests) request = {walk.next(), 1};
    course.contender.limiter().try_acquire_many_at(walk.tick(), requests, decisions);
    for (const Decision& decision : decisions) {
      const bool allowed = decision.allowed();
      benchmark::DoNotOptimize(allowed);
      denied += allowed ? 0 : 1;
    }
  }
  const std::uint64_t allocated = allocations() - allocations_before;
  course.walks[0] = walk;
  state.counters["allocations"] = static_cast<double>(allocated);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
  if (denied > 0) state.SkipWithError("some answers were not what the benchmark is about");
}

void hot_batches(benchmark::State& state) {
  static const auto hot = course(roomy_headgate(), kHot, hot_keys());
  measure_batches(state, *hot);
}
void million_batches(benchmark::State& state) {
  static const auto million = course(roomy_headgate(), kMillion, million_keys());
  measure_batches(state, *million);
}

void add_hot() {
  add_contenders("hot", kHot, hot_keys);
  add("hot/headgate_clock_inside", [] { return course(HeadgateWithClock(), kHot, hot_keys()); });
  benchmark::RegisterBenchmark("hot/headgate_batches", hot_batches);
  benchmark::RegisterBenchmark("hot/clock_steady", clock_steady);
  benchmark::RegisterBenchmark("hot/clock_headgate", clock_system);
  add_contenders("one_key", kOne, one_key);
}

void add_million() {
  add_contenders("million", kMillion, million_keys);
  benchmark::RegisterBenchmark("million/headgate_batches", million_batches);
  add_contenders("million_indexed", kMillion, million_indexed_keys);
}

// All eight strategies, hot and with a million keys.
void add_strategies() {
  const auto both = [](const std::string& name, auto make, const Pace& hot, const Pace& million) {
    add("strategy_hot/" + name, [=] { return course(make(), kHot, hot_keys(), hot); });
    add("strategy_million/" + name, [=] { return course(make(), kMillion, million_keys(), million); });
  };
  const auto with = [&](const std::string& name, const Result<Limit>& limit, Units prime) {
    both(name, [limit = checked(limit), prime] { return Headgate(limit, prime); }, {}, {});
  };
  const Nanos second = std::chrono::seconds{1};
  const Nanos hour = std::chrono::hours{1};
  with("token_bucket", roomy_token_bucket(), kCapacity / 2);
  with("gcra", Limit::gcra({kCapacity - 1, kRefillPerSecond, second}), kCapacity / 2);
  with("sliding_window_counter", Limit::sliding_window_counter({kCapacity, hour}), 1);
  with("fixed_window", Limit::fixed_window({kCapacity, hour}), 1);
  with("leaky_bucket", Limit::leaky_bucket({{kRefillPerSecond, second}, kCapacity}), kCapacity / 2);
  with("quota", Limit::quota({kCapacity, Period::kYear}), 1);
  both("concurrency", [] { return HeadgateHolds(checked(Limit::concurrency({100, std::chrono::hours{24}}))); }, {}, {});

  // A window that slides as the walk goes on: each call drops the oldest unit and adds one. Time goes on so fast that
  // a key comes 50 times in 60 seconds, or 4 times. Warmed until every key has been through all its places.
  const auto sliding = [] { return Headgate(checked(Limit::sliding_window({100, std::chrono::seconds{60}}))); };
  const auto step = [](KeyRange range, int per_window) {
    return Nanos{std::chrono::seconds{60}} / per_window / range.count;
  };
  both("sliding_window", sliding, {step(kHot, 50), 50 + kHotRounds}, {step(kMillion, 4), 4 + kMillionRounds});
  add("heavy_million/sliding_window_half_full", [=] {
    return course(sliding(), kMillion, million_keys(), {step(kMillion, 50), 50 + kMillionRounds});
  });
}

void add_denied() {
  const auto exhausted = [] { return Headgate(checked(Limit::token_bucket({10, {1, std::chrono::hours{1}}})), 10); };
  const Pace denied{Nanos{100}, 0, false};
  add("denied_hot/headgate", [=] { return course(exhausted(), kHot, hot_keys(), denied); });
  add("denied_million/headgate", [=] { return course(exhausted(), kMillion, million_keys(), denied); });
  add("denied_hot/headgate_sliding_window", [] {
    // A full window of 100 instants, which the warm-up fills and the walk never leaves.
    return course(Headgate(checked(Limit::sliding_window({100, std::chrono::seconds{60}}))), kHot, hot_keys(),
                  {Nanos{1}, 101, false});
  });
}

// The same keys, split among the threads: no key belongs to two.
template <class Keys, int kThreads, KeyRange kRange, int kRounds>
const std::vector<Keys>& split_keys() {
  static const std::vector<Keys> parts = [] {
    std::vector<Keys> all;
    constexpr std::uint32_t kEach = kRange.count / kThreads;
    for (std::uint32_t i = 0; i < kThreads; ++i) all.emplace_back(KeyRange{kRange.first + i * kEach, kEach}, kRounds);
    return all;
  }();
  return parts;
}
// One key for all of them; each thread reads its own copy.
template <int kThreads>
const std::vector<Indexed>& shared_key() {
  static const std::vector<Indexed> copies(kThreads, one_key());
  return copies;
}

template <int kThreads>
void add_threads() {
  const std::string threads = "/threads:" + std::to_string(kThreads);
  const auto split = [threads](const std::string& name, KeyRange range, auto parts, auto make) {
    add_threaded(name + threads, [=] {
      using Keys = typename std::decay_t<decltype(parts())>::value_type;
      std::vector<Walk<Keys>> walks;
      for (const Keys& part : parts()) walks.emplace_back(part, Pace{}.step);
      return std::make_unique<Course<Keys, decltype(make())>>(make(), range, std::move(walks), Pace{});
    });
  };
  const auto all = [&](const std::string& contender, auto make) {
    split("threads_hot/" + contender, kHot, split_keys<Indexed, kThreads, kHot, kHotRounds>, make);
    split("threads_million/" + contender, kMillion, split_keys<AccessOrder, kThreads, kMillion, kMillionRounds>, make);
    split("threads_one_key/" + contender, kOne, shared_key<kThreads>, make);
  };
  all("headgate", roomy_headgate);
  all("rival_mutex_map", [] { return MutexMapRival(); });
  all("rival_sharded_map", [] { return ShardedMapRival(); });
}

// Two threads ask for more of one key than there is, and what was admitted is counted.
void one_key_admits_its_limit(benchmark::State& state) {
  constexpr Units kLimit = 300'000;
  constexpr Units kAsked = 250'000;  // by each thread
  std::atomic<Units> admitted = 0;
  for (auto _ : state) {
    admitted = 0;
    Headgate headgate(checked(Limit::token_bucket({kLimit, {1, std::chrono::minutes{1}}})));
    const auto ask = [&](int thread) {
      const Pinned pinned(thread);
      Units own = 0;
      for (Units i = 0; i < kAsked; ++i) own += headgate.ask(kStart, view(key_text(0))) ? 1 : 0;
      admitted += own;
    };
    std::thread other(ask, 1);
    ask(0);
    other.join();
  }
  state.counters["admitted"] = static_cast<double>(admitted);
  state.counters["limit"] = static_cast<double>(kLimit);
}

}  // namespace
}  // namespace headgate::bench

int main(int argc, char** argv) {
  using namespace headgate::bench;
  (void)Pinned::allowed();
  add_hot();
  add_million();
  add_strategies();
  add_denied();
  add_threads<1>();
  add_threads<2>();
  benchmark::RegisterBenchmark("threads_limit/headgate", one_key_admits_its_limit)->Iterations(1)->UseRealTime();

  benchmark::AddCustomContext("cores_allowed", std::to_string(CPU_COUNT(&Pinned::allowed())));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

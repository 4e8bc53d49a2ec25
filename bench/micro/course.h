// A contender and the walk it is sent on, built when first needed and kept, so that repetitions in any order meet the
// same warm table.
#pragma once

#include <benchmark/benchmark.h>
#include <sched.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "micro/allocation_count.h"
#include "micro/contenders.h"
#include "micro/keys.h"

namespace headgate::bench {

// Which key comes next, and when.
template <class Keys>
class Walk {
 public:
  Walk(const Keys& keys, Nanos step) : keys_(&keys), step_(step) {}

  Nanos tick() noexcept { return now_ += step_; }
  std::string_view next() noexcept {
    const std::string_view key = (*keys_)[at_];
    at_ = at_ + 1 == keys_->size() ? 0 : at_ + 1;
    return key;
  }

 private:
  const Keys* keys_;
  std::size_t at_ = 0;
  Nanos now_{kStart};
  Nanos step_;
};

// What the walk is like. Time goes on by `step` with each call.
struct Pace {
  Nanos step{100};
  int warm_rounds = 0;  // how often every key is asked for before anything is measured
  bool allowed = true;  // what every answer must be; a run with another one fails
};

template <class Keys, class Contender>
struct Course {
  // One walk for each thread. All keys are primed, in their natural order.
  Course(Contender c, KeyRange range, std::vector<Walk<Keys>> w, const Pace& p)
      : contender(std::move(c)), walks(std::move(w)), pace(p) {
    for (std::uint32_t i = 0; i < range.count; ++i) contender.prime(view(key_text(range.first + i)));
    for (std::uint64_t i = 0; i < std::uint64_t{range.count} * static_cast<std::uint64_t>(pace.warm_rounds); ++i) {
      (void)contender.ask(walks[0].tick(), walks[0].next());
    }
  }

  Contender contender;
  std::vector<Walk<Keys>> walks;
  Pace pace;
};

// While it lives, the calling thread stays on the index-th of the cores that this program may use.
class Pinned {
 public:
  explicit Pinned(int index) noexcept {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed()) && index-- == 0) CPU_SET(cpu, &one);
    }
    if (CPU_COUNT(&one) > 0) sched_setaffinity(0, sizeof(one), &one);
  }
  ~Pinned() { sched_setaffinity(0, sizeof(before_), &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  // As it was at the first call.
  static const cpu_set_t& allowed() noexcept {
    static const cpu_set_t set = [] {
      cpu_set_t all;
      sched_getaffinity(0, sizeof(all), &all);
      return all;
    }();
    return set;
  }

 private:
  cpu_set_t before_;
};

// One answer per turn. The walk is copied so that it stays in registers, for every contender alike.
template <class Keys, class Contender>
void measure(benchmark::State& state, Course<Keys, Contender>& course) {
  const Pinned pinned(0);
  Walk<Keys> walk = course.walks[0];
  Contender& contender = course.contender;
  const bool expected = course.pace.allowed;
  std::int64_t surprises = 0;
  const std::uint64_t allocations_before = allocations();
  for (auto _ : state) {
    const Nanos now = walk.tick();
    const bool allowed = contender.ask(now, walk.next());
    benchmark::DoNotOptimize(allowed);
    surprises += allowed != expected ? 1 : 0;
  }
  const std::uint64_t allocated = allocations() - allocations_before;
  course.walks[0] = walk;
  state.SetItemsProcessed(state.iterations());
  state.counters["allocations"] = static_cast<double>(allocated);
  if (surprises > 0) state.SkipWithError("some answers were not what the benchmark is about");
}

// As many threads as there are walks, each on a core of its own. They run for a fixed time, not for a fixed number of
// calls: otherwise the first thread to finish leaves the others without contention.
template <class Keys, class Contender>
void measure_threads(benchmark::State& state, Course<Keys, Contender>& course) {
  constexpr std::chrono::milliseconds kTime{200};
  constexpr int kCallsPerLook = 64;
  const auto count = static_cast<std::ptrdiff_t>(course.walks.size());
  std::atomic<std::int64_t> calls = 0;
  std::atomic<std::int64_t> surprises = 0;
  const auto work = [&](int thread, std::latch& start, const std::atomic<bool>& stop) {
    const Pinned pinned(thread);
    Walk<Keys> walk = course.walks[static_cast<std::size_t>(thread)];
    std::int64_t own_calls = 0;
    std::int64_t own_surprises = 0;
    start.arrive_and_wait();
    for (; !stop.load(std::memory_order_relaxed); own_calls += kCallsPerLook) {
      for (int i = 0; i < kCallsPerLook; ++i) {
        const Nanos now = walk.tick();
        const bool allowed = course.contender.ask(now, walk.next());
        benchmark::DoNotOptimize(allowed);
        own_surprises += allowed != course.pace.allowed ? 1 : 0;
      }
    }
    course.walks[static_cast<std::size_t>(thread)] = walk;
    calls += own_calls;
    surprises += own_surprises;
  };
  for (auto _ : state) {
    std::latch start(count + 1);
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i, std::ref(start), std::cref(stop));
    start.arrive_and_wait();
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(kTime);
    stop = true;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    for (std::thread& thread : threads) thread.join();
    state.SetIterationTime(elapsed.count());
  }
  state.SetItemsProcessed(calls);
  if (surprises > 0) state.SkipWithError("some answers were not what the benchmark is about");
}

// Register a benchmark over a course that `make` builds at its first run.
template <class Make>
void add(const std::string& name, Make make) {
  auto built = std::make_shared<std::invoke_result_t<Make>>();
  benchmark::RegisterBenchmark(name.c_str(), [built, make](benchmark::State& state) {
    if (*built == nullptr) *built = make();
    measure(state, **built);
  });
}
template <class Make>
void add_threaded(const std::string& name, Make make) {
  auto built = std::make_shared<std::invoke_result_t<Make>>();
  benchmark::RegisterBenchmark(name.c_str(),
                               [built, make](benchmark::State& state) {
                                 if (*built == nullptr) *built = make();
                                 measure_threads(state, **built);
                               })
      ->Iterations(1)
      ->UseManualTime();
}

}  // namespace headgate::bench

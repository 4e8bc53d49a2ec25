#include <absl/container/flat_hash_map.h>
#include <benchmark/benchmark.h>
#include <random>
#include <string>
#include "headgate/limiter.h"
using namespace headgate;
static std::vector<std::string> keys(size_t n) {
  std::vector<std::string> v;
  v.reserve(n);
  for (size_t i = 0; i < n; i++) {
    char b[64];
    snprintf(b, sizeof b, "agent-%015zu", i);
    v.emplace_back(b);
  }
  return v;
}
struct Seq {
  std::string buf;
  std::vector<std::string_view> v;
};
static Seq seq(size_t n) {
  auto k = keys(n);
  std::mt19937 r(7);
  const int N = n <= 1000 ? 4096 : (1 << 20);
  Seq q;
  q.buf.reserve(22 << 20);
  std::vector<size_t> off;
  for (int i = 0; i < N; i++) {
    auto& x = k[r() % n];
    q.buf += x;
  }
  for (int i = 0; i < N; i++) q.v.emplace_back(q.buf.data() + 21 * i, 21);
  return q;
}
static std::unique_ptr<MemoryLimiter> lim() {
  return *MemoryLimiter::make(Options().limit(*Limit::token_bucket({1000000000, {1000, std::chrono::seconds(1)}})));
}
static void BM_absl(benchmark::State& s) {
  size_t n = s.range(0);
  auto k = keys(n);
  absl::flat_hash_map<std::string, int64_t> m;
  for (auto& x : k) m[x] = 1;
  auto q = seq(n);
  size_t i = 0;
  for (auto _ : s) {
    i++;
    benchmark::DoNotOptimize(m.find(absl::string_view(q.v[i & (q.v.size() - 1)].data(), 21)));
  }
}
static void BM_ours(benchmark::State& s) {
  size_t n = s.range(0);
  auto k = keys(n);
  auto l = lim();
  int64_t t = 1000000;
  for (auto& x : k) (void)l->try_acquire_at(Nanos(t), x);
  auto q = seq(n);
  size_t i = 0;
  for (auto _ : s) {
    t += 20;
    auto d = l->try_acquire_at(Nanos(t), q.v[i++ & (q.v.size() - 1)]);
    benchmark::DoNotOptimize(d);
  }
}
static void BM_many(benchmark::State& s) {
  size_t n = s.range(0);
  auto k = keys(n);
  auto l = lim();
  int64_t t = 1000000;
  for (auto& x : k) (void)l->try_acquire_at(Nanos(t), x);
  auto q = seq(n);
  size_t i = 0;
  Request r[32];
  Decision d[32];
  for (auto _ : s) {
    t += 20;
    for (int j = 0; j < 32; j++) r[j] = {q.v[(i + j) & (q.v.size() - 1)], 1};
    i += 32;
    l->try_acquire_many_at(Nanos(t), r, d);
    benchmark::DoNotOptimize(d);
  }
  s.SetItemsProcessed(s.iterations() * 32);
}
BENCHMARK(BM_absl)->Arg(1000)->Arg(1000000);
BENCHMARK(BM_ours)->Arg(1000)->Arg(1000000);
BENCHMARK(BM_many)->Arg(1000)->Arg(1000000);
BENCHMARK_MAIN();

// How long a snapshot takes to save and to restore: headgate_bench_restore [--cells=N] [--file=PATH]
//
// The cells are token buckets under distinct keys, all of them in use at the instant of the restore. The file is
// written and removed again.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "store/memory/memory_store.h"

namespace headgate::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Nanos kNow = std::chrono::seconds{1'700'000'000};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int fail(std::string_view what) {
  std::fprintf(stderr, "headgate_bench_restore: %.*s\n", static_cast<int>(what.size()), what.data());
  return 1;
}

int run(std::uint64_t cells, const std::string& path) {
  const store::MemoryStoreOptions options{.max_cells = cells + 1};
  const Limit limit = Limit::token_bucket({.capacity = 100, .refill_rate = {1, std::chrono::hours{1}}}).value();
  const store::LiveLimit live(core::compile(limit));
  {
    store::MemoryStore store(options);
    for (std::uint64_t i = 0; i < cells; ++i) {
      store::Charge charge;
      charge.key = store.hasher()("agent-" + std::to_string(i));
      charge.limit = &live;
      charge.cost = 1;
      core::Outcome outcome;
      if (store.apply({&charge, 1}, {kNow, kNow}, {&outcome, 1}).store_full) return fail("the store is full");
    }
    const auto start = Clock::now();
    if (const auto saved = store.save(path, "", kNow); !saved) return fail(saved.error().message);
    std::printf("saved    %llu cells in %.2f s\n", static_cast<unsigned long long>(cells), seconds_since(start));
  }
  store::MemoryStore store(options);
  const auto start = Clock::now();
  const auto restored = store.restore(path, kNow, [](std::string_view) { return Result<void>{}; });
  const double took = seconds_since(start);
  std::remove(path.c_str());
  if (!restored) return fail(restored.error().message);
  if (*restored != cells) return fail("cells were lost");
  std::printf("restored %llu cells in %.2f s\n", static_cast<unsigned long long>(*restored), took);
  return 0;
}

}  // namespace
}  // namespace headgate::bench

int main(int argc, char** argv) {
  std::uint64_t cells = 10'000'000;
  std::string path = "headgate_bench_restore.snapshot";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--cells=")) {
      cells = std::strtoull(argv[i] + 8, nullptr, 10);
    } else if (argument.starts_with("--file=")) {
      path = argument.substr(7);
    } else {
      std::fprintf(stderr, "usage: headgate_bench_restore [--cells=N] [--file=PATH]\n");
      return 2;
    }
  }
  return headgate::bench::run(cells, path);
}

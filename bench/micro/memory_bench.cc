// What a key costs in memory: the growth of the resident set while keys are added, everything counted.
//
// Each case runs in a process of its own, so that none inherits another's free memory. Keys are written into a buffer
// on the stack and never kept by the benchmark. Usage: headgate_bench_memory [--json=FILE] [--quick]
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "micro/contenders.h"
#include "micro/keys.h"

namespace headgate::bench {
namespace {

constexpr std::uint32_t kMany = 1'000'000;
constexpr std::uint32_t kWindows = 20'000;
constexpr Units kWindowLimit = 100;

// What a case reports to its parent.
struct Measured {
  double bytes = 0;          // grown by, with all keys in place
  double worst_per_key = 0;  // the most per key while the last tenth of the keys came in
};

// The kernel walks the pages for this figure; the one in statm may lag by a few hundred kilobytes.
double resident_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word) {
    if (word != "Rss:") continue;
    double kilobytes = 0;
    file >> kilobytes;
    return kilobytes * 1024;
  }
  die("/proc/self/smaps_rollup has no Rss");
}

// Samples the resident set while keys are added.
class Meter {
 public:
  explicit Meter(std::uint32_t keys) : keys_(keys) {}

  void key_added(std::uint32_t so_far) {
    if (so_far * 10ULL < keys_ * 9ULL || so_far % 4096 != 0) return;
    worst_ = std::max(worst_, (resident_bytes() - before_) / so_far);
  }
  [[nodiscard]] Measured result() const {
    const double grown = resident_bytes() - before_;
    return {grown, std::max(worst_, grown / keys_)};
  }

 private:
  std::uint32_t keys_;
  double before_ = resident_bytes();
  double worst_ = 0;
};

// Before the meter starts, the code is read from disk by using it once, and what that leaves free is given back: a
// key's memory is neither charged for code nor had for nothing.
template <class Make>
void rehearse(Make make) {
  make().prime("rehearsal");
  malloc_trim(0);
}

template <class Make>
Measured add_keys(std::uint32_t keys, Make make) {
  rehearse(make);
  Meter meter(keys);
  auto contender = make();
  for (std::uint32_t i = 0; i < keys; ++i) {
    contender.prime(view(key_text(i)));
    meter.key_added(i + 1);
  }
  return meter.result();
}

enum class Fill { kKeyByKey, kRoundRobin };

// Every unit at an instant of its own, so that none can share an entry; all within one window.
Measured fill_windows(std::uint32_t keys, Fill fill) {
  const auto make = [] {
    return Headgate(checked(Limit::sliding_window({kWindowLimit, std::chrono::seconds{60}})), 1);
  };
  rehearse(make);
  Meter meter(keys);
  Headgate headgate = make();
  Nanos now = kStart;
  const auto take = [&](std::uint32_t key) {
    now += std::chrono::microseconds{10};
    if (!headgate.ask(now, view(key_text(key)))) die("filling a window was denied");
  };
  const auto units = static_cast<std::uint32_t>(kWindowLimit);
  for (std::uint32_t i = 0; i < keys * units; ++i) take(fill == Fill::kKeyByKey ? i / units : i % keys);
  if (headgate.ask(now, view(key_text(0)))) die("a full window admitted one more");
  if (headgate.limiter().totals().cells != keys) die("cells were dropped while windows were filled");
  return meter.result();
}

struct Case {
  std::string name;
  std::uint32_t keys;
  Units units_per_key;
  std::function<Measured()> run;
};

std::vector<Case> cases(bool quick) {
  std::vector<Case> all;
  const std::uint32_t many = kMany;
  const auto add = [&](const std::string& name, auto make) {
    all.push_back({name, many, 1, [=] { return add_keys(many, make); }});
  };
  const auto limit = [&](const std::string& name, const Result<Limit>& result, Units prime) {
    add(name, [limit = checked(result), prime] { return Headgate(limit, prime); });
  };
  limit("token_bucket", roomy_token_bucket(), kCapacity / 2);
  all.push_back({"sliding_window_full_key_by_key", kWindows, kWindowLimit,
                 [] { return fill_windows(kWindows, Fill::kKeyByKey); }});
  all.push_back({"sliding_window_full_round_robin", kWindows, kWindowLimit,
                 [] { return fill_windows(kWindows, Fill::kRoundRobin); }});
  add("rival_mutex_map", [] { return MutexMapRival(); });
  add("rival_sharded_map", [] { return ShardedMapRival(); });
  add("floor_absl_map", [] { return Floor{}; });
  if (quick) return all;
  const Nanos second = std::chrono::seconds{1};
  const Nanos hour = std::chrono::hours{1};
  limit("gcra", Limit::gcra({kCapacity - 1, kRefillPerSecond, second}), kCapacity / 2);
  limit("fixed_window", Limit::fixed_window({kCapacity, hour}), 1);
  limit("sliding_window_counter", Limit::sliding_window_counter({kCapacity, hour}), 1);
  limit("leaky_bucket", Limit::leaky_bucket({{kRefillPerSecond, second}, kCapacity}), kCapacity / 2);
  limit("quota", Limit::quota({kCapacity, Period::kYear}), 1);
  limit("sliding_window_one_unit", Limit::sliding_window({kWindowLimit, hour}), 1);
  limit("concurrency_one_hold", Limit::concurrency({kWindowLimit, hour}), 1);
  return all;
}

Measured in_a_child(const Case& one) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) die("pipe failed");
  const pid_t child = fork();
  if (child < 0) die("fork failed");
  if (child == 0) {
    const Measured measured = one.run();
    const bool written = write(pipe_ends[1], &measured, sizeof(measured)) == sizeof(measured);
    _exit(written ? 0 : 1);  // nothing is worth freeing
  }
  close(pipe_ends[1]);
  Measured measured;
  const bool read_all = read(pipe_ends[0], &measured, sizeof(measured)) == sizeof(measured);
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!read_all || status != 0) die("case " + one.name + " failed");
  return measured;
}

}  // namespace
}  // namespace headgate::bench

int main(int argc, char** argv) {
  using namespace headgate::bench;
  std::string json_path;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument.starts_with("--json=")) {
      json_path = argument.substr(std::strlen("--json="));
    } else {
      die("usage: headgate_bench_memory [--json=FILE] [--quick]");
    }
  }

  std::string json = "{\"cases\": [";
  std::printf("%-34s %10s %8s %14s %14s\n", "case", "keys", "units", "bytes per key", "worst per key");
  for (const Case& one : cases(quick)) {
    const Measured measured = in_a_child(one);
    const double per_key = measured.bytes / one.keys;
    std::printf("%-34s %10u %8lld %14.1f %14.1f\n", one.name.c_str(), one.keys,
                static_cast<long long>(one.units_per_key), per_key, measured.worst_per_key);
    char line[256];
    std::snprintf(line, sizeof(line),
                  "%s\n  {\"name\": \"%s\", \"keys\": %u, \"units_per_key\": %lld, \"bytes_per_key\": %.2f, "
                  "\"worst_bytes_per_key\": %.2f}",
                  json.back() == '[' ? "" : ",", one.name.c_str(), one.keys, static_cast<long long>(one.units_per_key),
                  per_key, measured.worst_per_key);
    json += line;
  }
  json += "\n]}\n";
  if (json_path.empty()) return 0;
  std::ofstream file(json_path);
  file << json;
  file.close();
  if (!file) die("cannot write " + json_path);
}

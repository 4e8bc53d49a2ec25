// What a check costs through the engine, beside one try_acquire of the library, in one run.
//
// Rounds alternate between the contenders, so that whatever the machine does meets all of them; a figure is the median
// over all rounds. Prints Markdown. Usage: headgate_bench_engine [--quick]
//
// For profilers, one contender alone: headgate_bench_engine --only plain|quotas|fresh CALLS
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <functional>
#include <latch>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "headgate/limiter.h"
#include "micro/allocation_count.h"
#include "policy/reader.h"

namespace headgate::bench {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr Nanos kStart = 1'700'000'000s;
constexpr Nanos kTick = 20us;  // virtual time between two checks

// Three policies match the check; the others are for other agents, operations, tenants and models.
policy::Document document(std::size_t policies) {
  std::string yaml = R"(
policies:
  - {id: everyone, key: [], limit: {strategy: token_bucket, capacity: 100000000, refill_rate: 1}}
  - {id: agents, key: [agent, session], limit: {strategy: sliding_window, limit: 50, window: 200ms}}
  - id: components
    match: {agents: ["agent-*"], operations: [CREATE_COMPONENT], contexts: [UI_DEVELOPMENT]}
    key: [agent, operation]
    limit: {strategy: token_bucket, capacity: 100000000, refill_rate: 1}
)";
  for (std::size_t i = 3; i < policies; ++i) {
    switch (i % 4) {
      case 0:
        yaml += fmt::format(
            "  - {{id: p{0}, match: {{agents: [other-{0}], operations: [CREATE_COMPONENT]}}, limit: 10/1s}}\n", i);
        break;
      case 1: yaml += fmt::format("  - {{id: p{0}, match: {{operations: [\"op{0}.*\"]}}, limit: 10/1s}}\n", i); break;
      case 2:
        yaml += fmt::format("  - {{id: p{0}, match: {{tenants: [tenant-{0}]}}, key: [tenant], limit: 10/1s}}\n", i);
        break;
      default: yaml += fmt::format("  - {{id: p{0}, match: {{attributes: {{model: m{0}}}}}, limit: 10/1s}}\n", i);
    }
  }
  policy::ReadResult read = policy::read_text(yaml, "bench.yaml");
  if (!read.ok()) {
    fmt::print(stderr, "{}\n", read.problems.front().text());
    std::exit(1);
  }
  return std::move(read.document);
}

// A thousand agents, asked about in no order, as the library's hot keys are.
constexpr std::size_t kAgents = 1'000;
constexpr std::size_t kTurns = 16 * kAgents;

const std::vector<std::string>& agents() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kAgents; ++i) names.push_back(fmt::format("agent-{:015}", i));
    return names;
  }();
  return all;
}
const std::vector<std::uint32_t>& order() {
  static const std::vector<std::uint32_t> turns = [] {
    std::mt19937 random(1);
    std::vector<std::uint32_t> all(kTurns);
    for (std::uint32_t& each : all) each = random() % kAgents;
    return all;
  }();
  return turns;
}

Check the_check(std::size_t turn) {
  static constexpr std::array<Attribute, 1> kAttributes{{{"componentType", "Button"}}};
  Check check;
  check.agent = agents()[order()[turn % kTurns]];
  check.session = "session-1";
  check.operation = "CREATE_COMPONENT";
  check.tenant = "tenant";
  check.context = "UI_DEVELOPMENT";
  check.attributes = kAttributes;
  return check;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Contender {
  std::string name;
  std::function<void(std::size_t calls)> run;
  std::vector<double> nanos{};  // per call, by round
  std::uint64_t allocations = 0;
};

void measure(Contender& contender, std::size_t calls) {
  const std::uint64_t before = allocations();
  const auto start = SteadyClock::now();
  contender.run(calls);
  const Nanos took = SteadyClock::now() - start;
  contender.allocations += allocations() - before;
  contender.nanos.push_back(static_cast<double>(took.count()) / static_cast<double>(calls));
}

class EngineContender {
 public:
  enum class Kind : std::uint8_t {
    kPlain,
    kQuotas,  // each check takes from a day, a week and a month of the agent's, too, as the service does
    kFresh,   // each check names a model of its own: nothing that was remembered of others helps
  };
  explicit EngineContender(std::size_t policies, Kind kind = Kind::kPlain) : engine_({.clock = &clock_}), kind_(kind) {
    for (const Period period : {Period::kDay, Period::kWeek, Period::kMonth}) {
      limits_.push_back(engine_.allowances().limit(*Limit::quota({.limit = 1'000'000'000, .period = period})));
    }
    for (const std::string& agent : agents()) {
      const base::Hash128 whose = engine_.allowances().cell(std::array<std::string_view, 2>{agent, "CREATE_COMPONENT"});
      Allowances& allowances = allowances_.emplace_back();
      for (const engine::WorkingLimit* limit : limits_) {
        Allowances::One& one = allowances.all.emplace_back();
        one.limit = limit;
        one.cell = Allowances::cell(whose, allowances.all.size());
      }
    }
    if (!engine_.load(document(policies))) std::exit(1);
    if (engine_.check_at(now_, the_check(0)).judged.size() != 3) {
      fmt::print(stderr, "three policies should match\n");
      std::exit(1);
    }
  }
  void operator()(std::size_t calls) {
    for (std::size_t i = 0; i < calls; ++i) {
      now_ += kTick;
      Check check = the_check(turn_++);
      std::array<char, 16> digits;
      Attribute model{"model", std::string_view()};
      if (kind_ == Kind::kFresh) {
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), turn_).ptr;
        model.value.text = {digits.data(), static_cast<std::size_t>(end - digits.data())};
        check.attributes = {&model, 1};
      }
      engine::Account account;
      if (kind_ == Kind::kQuotas) account.allowances = &allowances_[order()[(turn_ - 1) % kTurns]];
      const engine::CheckDecision decision = engine_.check_at(now_, check, account);
      if (!decision.allowed) denied_++;
    }
    if (denied_ > 0) {
      fmt::print(stderr, "{} checks were denied; none should be\n", denied_);
      std::exit(1);
    }
  }
  engine::Engine& engine() { return engine_; }

 private:
  ManualClock clock_{kStart};
  engine::Engine engine_;
  const Kind kind_;
  std::vector<const engine::WorkingLimit*> limits_;
  std::vector<Allowances> allowances_;  // of each agent
  Nanos now_ = kStart;
  std::size_t denied_ = 0;
  std::size_t turn_ = 0;
};

// How long checks take, while policies are replaced beside them.
struct Reloads {
  std::array<std::uint64_t, 9> histogram{};  // below 1, 4, 16, ... microseconds; the last: anything longer
  double longest_us = 0;
  std::size_t count = 0;

  [[nodiscard]] std::uint64_t checks() const { return std::accumulate(histogram.begin(), histogram.end(), 0ULL); }
  [[nodiscard]] std::uint64_t over_a_millisecond() const { return histogram[6] + histogram[7] + histogram[8]; }
};

// `elsewhere`: the policies are another engine's, so that what is left is what the machine does: the other thread's
// memory traffic, and other processes on the core.
Reloads measure_reloads(std::chrono::milliseconds for_how_long, bool elsewhere) {
  const policy::Document documents[] = {document(10'000), document(9'999)};
  engine::Engine engine;
  engine::Engine other;
  Reloads found;
  std::atomic<bool> stop{false};
  std::latch loaded(1);
  // The thread that loads has made what it frees, as in a server: else the two would meet in the allocator.
  std::thread reloader([&] {
    (void)engine.load(documents[0]);
    loaded.count_down();
    const auto end = SteadyClock::now() + for_how_long;
    while (SteadyClock::now() < end) {
      (void)(elsewhere ? other : engine).load(documents[++found.count % 2]);
    }
    stop = true;
  });
  loaded.wait();
  for (std::size_t turn = 0; !stop; ++turn) {
    const Check check = the_check(turn);
    const auto start = SteadyClock::now();
    const engine::CheckDecision decision = engine.check(check);
    const double us = static_cast<double>(Nanos(SteadyClock::now() - start).count()) / 1e3;
    found.longest_us = std::max(found.longest_us, us);
    std::size_t bucket = 0;
    for (double bound = 1; us >= bound && bucket + 1 < found.histogram.size(); bound *= 4) ++bucket;
    ++found.histogram[bucket];
  }
  reloader.join();
  return found;
}

void run(bool quick) {
  const int rounds = quick ? 7 : 31;
  const std::size_t calls = quick ? 200'000 : 1'000'000;

  const auto limiter = MemoryLimiter::make(Options().limit(*Limit::token_bucket({100'000'000, {1, 1s}, 0})));
  Nanos limiter_now = kStart;
  EngineContender hundred(100);
  EngineContender ten_thousand(10'000);
  EngineContender with_quotas(100, EngineContender::Kind::kQuotas);
  EngineContender fresh(100, EngineContender::Kind::kFresh);
  std::vector<Contender> contenders;
  const auto take = [&](std::string_view key) {
    limiter_now += kTick;
    if (!(*limiter)->try_acquire_at(limiter_now, key, 1)) std::exit(1);
  };
  std::size_t turn = 0;
  contenders.push_back({"library, try_acquire over 1,000 hot keys", [&](std::size_t n) {
                          for (std::size_t i = 0; i < n; ++i) take(agents()[order()[turn++ % kTurns]]);
                        }});
  contenders.push_back({"engine, 3 of 100 policies match", std::ref(hundred)});
  contenders.push_back({"engine, 3 of 10,000 policies match", std::ref(ten_thousand)});
  contenders.push_back({"engine, 3 of 100 policies match, with quotas by day, week and month", std::ref(with_quotas)});
  contenders.push_back({"engine, 3 of 100 policies match, and no check is like another", std::ref(fresh)});
  contenders.push_back({"library, try_acquire on one hot key", [&](std::size_t n) {
                          for (std::size_t i = 0; i < n; ++i) take("agent-000000000000001");
                        }});
  for (Contender& contender : contenders) contender.run(calls);
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) measure(contender, calls);
  }

  fmt::print("| | ns per call | to one try_acquire | allocations |\n|---|---|---|---|\n");
  const double base = median(contenders[0].nanos);
  for (const Contender& contender : contenders) {
    const double ns = median(contender.nanos);
    fmt::print("| {} | {:.1f} | {:.2f}x | {} |\n", contender.name, ns, ns / base, contender.allocations);
  }
  const double three = median(contenders[1].nanos);
  const double many = median(contenders[2].nanos);
  fmt::print("\n- three of 100 policies: {:.2f}x one hot try_acquire (goal: at most 6x): {}\n", three / base,
             three / base <= 6 ? "met" : "NOT met");
  fmt::print("- with 10,000 policies: {:.2f}x that (goal: at most 1.3x): {}\n", many / three,
             many / three <= 1.3 ? "met" : "NOT met");
  const double quotas = median(contenders[3].nanos);
  fmt::print("- with three quotas: {:.2f}x that (goal: at most 1.2x): {}\n", quotas / three,
             quotas / three <= 1.2 ? "met" : "NOT met");
  fmt::print(
      "- simulated checks a second through three policies, without reading a trace: {:.2f} million (goal: 1 million): "
      "{}\n",
      1e3 / three, three <= 1000 ? "met" : "NOT met");

  // In turns, so that whatever the machine does meets both.
  std::array<Reloads, 2> reloads;
  for (int round = 0; round < 4; ++round) {
    for (const bool elsewhere : {false, true}) {
      const Reloads found = measure_reloads(quick ? 500ms : 2'500ms, elsewhere);
      Reloads& sum = reloads[elsewhere ? 1 : 0];
      for (std::size_t i = 0; i < found.histogram.size(); ++i) sum.histogram[i] += found.histogram[i];
      sum.longest_us = std::max(sum.longest_us, found.longest_us);
      sum.count += found.count;
    }
  }
  static constexpr std::array kLabels{"< 1 us", "< 4 us", "< 16 us", "< 64 us", "< 256 us",
                                      "< 1 ms", "< 4 ms", "< 16 ms", "longer"};
  fmt::print(
      "\nChecks while 10,000 policies were replaced beside them, {} times in their engine and {} times in another:\n\n",
      reloads[0].count, reloads[1].count);
  fmt::print("| took | in their engine | in another |\n|---|---|---|\n");
  for (std::size_t i = 0; i < kLabels.size(); ++i) {
    fmt::print("| {} | {} | {} |\n", kLabels[i], reloads[0].histogram[i], reloads[1].histogram[i]);
  }
  fmt::print("| longest | {:.0f} us | {:.0f} us |\n", reloads[0].longest_us, reloads[1].longest_us);
  const auto share = [](const Reloads& of) {
    return 1e6 * static_cast<double>(of.over_a_millisecond()) / static_cast<double>(of.checks());
  };
  fmt::print(
      "\n- checks over 1 ms, in a million: {:.2f}, and {:.2f} where no reload concerns them (goal: none waits for a "
      "reload)\n",
      share(reloads[0]), share(reloads[1]));
}

}  // namespace
}  // namespace headgate::bench

int main(int argc, char** argv) {
  using headgate::bench::EngineContender;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "--only") {
    using Kind = EngineContender::Kind;
    const Kind kind = arguments[1] == "quotas" ? Kind::kQuotas : arguments[1] == "fresh" ? Kind::kFresh : Kind::kPlain;
    EngineContender alone(100, kind);
    headgate::bench::Contender contender{arguments[1], std::ref(alone)};
    headgate::bench::measure(contender, std::stoull(arguments[2]));
    fmt::print("{:.1f} ns per call\n", contender.nanos.front());
    return 0;
  }
  headgate::bench::run(!arguments.empty() && arguments[0] == "--quick");
}

// Leases of many nodes, simulated: a table of what was admitted beside what was promised. Exits 1 if a promise was
// broken. Without arguments, all scenarios, small; with some, one scenario of that kind.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace headgate::sim {
namespace {

constexpr const char* kHead =
    "                                         |         answered  messages |                         | over-admitted | "
    "usable | stranded\n"
    "strategy       nodes demand  crashes lost | checks    here per check | admitted   ideal  under |  most of most |  "
    " most |  most of most\n";

void print(const Scenario& scenario, const Findings& f, const std::string& remark) {
  const auto part = [](std::uint64_t a, std::uint64_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
  };
  const double under = 100 * (1 - part(f.admitted, f.ideal));
  fmt::print(
      "{:<14} {:>5} {:<7} {:>5}/s {:>3.0f}% | {:>7} {:>5.1f}% {:>8.3f} | {:>8} {:>8} {:>4.1f}% | {:>5} {:>7} | {:>6} | "
      "{:>5} {:>7}{}\n",
      to_string(scenario.strategy), scenario.nodes, scenario.skew == Skew::kZipf ? "zipf" : "uniform", scenario.crashes,
      scenario.lost * 100, f.checks, 100 * part(f.local, f.checks), part(f.commands, f.checks), f.admitted, f.ideal,
      under, f.over, f.over_bound, f.usable, f.stranded, f.stranded_bound, remark);
}

// Several runs as one: what was counted is added up, of the most it is the most.
void add(const Findings& f, Findings& all) {
  all.admitted += f.admitted;
  all.ideal += f.ideal;
  all.local += f.local;
  all.checks += f.checks;
  all.commands += f.commands;
  all.over = std::max(all.over, f.over);
  all.over_bound = f.over_bound;
  all.stranded = std::max(all.stranded, f.stranded);
  all.stranded_bound = std::max(all.stranded_bound, f.stranded_bound);
  all.usable = std::max(all.usable, f.usable);
}

// Runs it and says how it went; false: a bound did not hold.
bool report(const Scenario& scenario, Findings& all) {
  const Findings f = run(scenario);
  const bool held = f.over <= f.over_bound && f.stranded <= f.stranded_bound && f.usable <= f.over_bound;
  print(scenario, f, held ? "" : fmt::format("  BROKEN, seed {}", scenario.seed));
  add(f, all);
  return held;
}

bool report_seeds(Scenario scenario, int seeds) {
  Findings all;
  bool held = true;
  for (int i = 0; i < seeds; ++i, ++scenario.seed) held = report(scenario, all) && held;
  if (seeds > 1) print(scenario, all, "  all of them");
  return held;
}

bool report_all(std::uint64_t seed, int seeds) {
  bool held = true;
  for (const Strategy strategy : {Strategy::kTokenBucket, Strategy::kSlidingWindow, Strategy::kFixedWindow}) {
    for (const int nodes : {1, 3, 10, 100, 1000}) {
      for (const Skew skew : {Skew::kUniform, Skew::kZipf}) {
        for (const bool rough : {false, true}) {
          Scenario scenario;
          scenario.seed = seed;
          scenario.strategy = strategy;
          scenario.nodes = nodes;
          scenario.skew = skew;
          scenario.crashes = rough ? 2 : 0;
          scenario.lost = rough ? 0.02 : 0;
          held = report_seeds(scenario, seeds) && held;
        }
      }
    }
  }
  return held;
}

}  // namespace
}  // namespace headgate::sim

int main(int argc, char** argv) {
  using namespace headgate;
  sim::Scenario scenario;
  scenario.nodes = 0;
  int seeds = 1;
  double seconds = 6;
  double span = 2;
  double ttl = 1;
  const std::map<std::string, sim::Skew> skews{{"uniform", sim::Skew::kUniform}, {"zipf", sim::Skew::kZipf}};
  const std::map<std::string, Strategy> strategies{{"token_bucket", Strategy::kTokenBucket},
                                                   {"gcra", Strategy::kGcra},
                                                   {"sliding_window", Strategy::kSlidingWindow},
                                                   {"fixed_window", Strategy::kFixedWindow}};
  CLI::App app{"Simulates nodes that lease units from one store"};
  app.add_option("--nodes", scenario.nodes, "How many; without it, all scenarios are run")->check(CLI::Range(1, 10000));
  app.add_option("--seed", scenario.seed, "What happens");
  app.add_option("--seeds", seeds, "How many seeds from there on")->check(CLI::Range(1, 100000));
  app.add_option("--skew", scenario.skew, "Of the nodes' demand")->transform(CLI::CheckedTransformer(skews));
  app.add_option("--strategy", scenario.strategy, "Of the limit")->transform(CLI::CheckedTransformer(strategies));
  app.add_option("--limit", scenario.limit, "Units per span")->check(CLI::Range(1, 100'000'000));
  app.add_option("--span", span, "Seconds of the window, or to fill the bucket");
  app.add_option("--share", scenario.settings.share, "Of the limit that may be out in leases")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--share-in-truth", scenario.share_in_truth, "What nodes take instead, to break the bounds");
  app.add_option("--ttl", ttl, "Seconds that a lease lasts");
  app.add_option("--demand", scenario.demand, "As a multiple of the limit");
  app.add_option("--crashes", scenario.crashes, "Per second, over all nodes");
  app.add_option("--lost", scenario.lost, "Part of the messages")->check(CLI::Range(0.0, 1.0));
  app.add_option("--delay-ms", scenario.delay_ms, "Of a message, one way, on average");
  app.add_option("--seconds", seconds, "How long it goes on");
  CLI11_PARSE(app, argc, argv);
  const auto nanos = [](double s) { return Nanos{static_cast<std::int64_t>(s * 1e9)}; };
  scenario.span = nanos(span);
  scenario.settings.ttl = nanos(ttl);
  scenario.length = nanos(seconds);

  fmt::print("{}", sim::kHead);
  const bool held = scenario.nodes == 0 ? sim::report_all(scenario.seed, seeds) : sim::report_seeds(scenario, seeds);
  return held ? 0 : 1;
}

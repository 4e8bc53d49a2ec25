// The bounds of the engine and of policy documents.
#include <algorithm>

#include "bounds.h"
#include "control/violations.h"
#include "engine/escalations.h"
#include "policy/limit_reader.h"
#include "support/engines.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;
using engine::CheckDecision;
using engine::Engine;
using engine::Why;

constexpr const char* kPlenty = "policies: [{id: p, limit: 1000000/1h, key: [agent]}]";
constexpr const char* kSlots =
    "policies: [{id: p, limit: {strategy: concurrency, max: 2}, behavior: queue, max_wait: 60s}]\n"
    "queue: {max_waiting: 3}";

struct Bounded {
  explicit Bounded(const std::string& yaml, engine::EngineOptions options = {}) : engine(filled(options)) {
    EXPECT_TRUE(engine.load(read(yaml)));
  }
  CheckDecision ask(const Q& q) { return engine.check(q.get()); }
  Why why(const Q& q) { return ask(q).why; }

  engine::EngineOptions filled(engine::EngineOptions options) {
    options.clock = &clock;
    options.sink = &listener;
    return options;
  }
  ManualClock clock{std::chrono::seconds{1'699'999'200}};
  Listener listener;
  Engine engine;
};

std::string name(std::size_t number) { return "n" + std::to_string(number); }
base::Hash128 hash(std::size_t number) { return {number, number}; }

bool open_leases() {
  Bounded it(kPlenty, {.max_leases = 3});
  std::vector<std::string> leases;
  for (int i = 0; i < 3; ++i) leases.push_back(it.ask(Q("run").agent("a").hold()).lease);
  const double before = it.ask(Q("run").agent("a").peek()).remaining;
  const bool refused = it.why(Q("run").agent("a").hold()) == Why::kTooManyLeases;
  const bool uncharged = it.ask(Q("run").agent("a").peek()).remaining == before;
  return refused && uncharged && it.engine.holds().release(leases[0], "").has_value() &&
         it.ask(Q("run").agent("a").hold()).allowed && it.engine.holds().open() == 3;
}

bool waiting_line() {
  Bounded it(kSlots);
  (void)it.ask(Q("run"));
  (void)it.ask(Q("run"));
  std::vector<Why> told;
  for (int i = 0; i < 5; ++i) {
    it.engine.check_async(Q("run").get(), [&](const CheckDecision& decision) { told.push_back(decision.why); });
  }
  const bool full = it.engine.queue().size() == 3 && told == std::vector<Why>{Why::kQueueFull, Why::kQueueFull};
  it.clock.advance(61s);
  (void)it.engine.poll();
  return full && it.engine.queue().size() == 0 && told.size() == 5;
}

bool cells_refused() {
  Bounded it(kPlenty, {.max_cells = 100});
  std::size_t refused = 0;
  for (std::size_t i = 0; i < 150; ++i) refused += it.why(Q("run").agent(name(i))) == Why::kStoreFull ? 1 : 0;
  return refused == 50 && it.engine.cells().totals().cells == 100 && it.engine.cells().totals().refused >= 50 &&
         it.ask(Q("run").agent(name(0))).allowed;
}

bool cells_of_one_agent() {
  Bounded it("policies: [{id: p, limit: 1000000/1h, key: [agent, session]}]",
             {.max_cells = 1000, .max_cells_per_agent = 100});
  std::size_t refused = 0;
  for (std::size_t i = 0; i < 150; ++i) {
    const CheckDecision decision = it.ask(Q("run").agent("a").session(name(i)));
    refused += decision.why == Why::kShareFull && decision.error() == "too_many_keys" ? 1 : 0;
  }
  const auto told = it.listener.all(engine::Event::Kind::kCellsFull);
  bool others = true;
  for (std::size_t i = 0; i < 100; ++i) {
    others = others && it.ask(Q("run").agent("b").session(name(i))).allowed && it.ask(Q("run").agent(name(i))).allowed;
  }
  return refused == 50 && others && told.size() == 50 && told[0].agent == "a" &&
         it.engine.cells().totals().refused == 50 && it.ask(Q("run").agent("a").session(name(0))).allowed;
}

bool cells_evicted() {
  Bounded it(kPlenty, {.max_cells = 100, .at_cap = AtCap::kEvictOldest});
  bool all = true;
  for (std::size_t i = 0; i < 150; ++i) all = all && it.ask(Q("run").agent(name(i))).allowed;
  return all && it.engine.cells().totals().cells <= 100 && it.engine.cells().totals().evicted >= 50;
}

bool allowance_limits() {
  Bounded it(kPlenty);
  const auto made = [&](std::size_t number) {
    return it.engine.allowances().limit(*Limit::fixed_window({static_cast<Units>(number) + 1, 1h}));
  };
  for (std::size_t i = 0; i < engine::Controls::kMostLastingLimits; ++i) {
    if (made(i) == nullptr) return false;
  }
  return made(engine::Controls::kMostLastingLimits) == nullptr && made(0) != nullptr;
}

bool escalated_subjects() {
  engine::Escalations escalations;
  const policy::Escalation twice{.to = "x", .threshold = 2, .time_window = 1h};
  for (std::size_t i = 0; i <= engine::Escalations::kMost; ++i) (void)escalations.violated(hash(i), twice, 1s);
  // The first was forgotten: its second violation counts as its first.
  return !escalations.violated(hash(0), twice, 2s) && escalations.violated(hash(engine::Escalations::kMost), twice, 2s);
}

bool violating_agents() {
  control::Violations violations({.max_agents = 100});
  for (std::size_t i = 0; i < 1'000; ++i) violations.record(name(i), 1s);
  return violations.totals().agents <= 100 && violations.totals().evicted >= 900;
}

bool unknown_operations() {
  Bounded it("tiers: {}");
  for (std::size_t i = 0; i < 10'002; ++i) (void)it.ask(Q(name(i)).agent("a"));
  return it.listener.count(engine::Event::Kind::kUnknownOperation) == 10'000;
}

bool arrears() {
  engine::Arrears owed;
  for (std::size_t i = 0; i < engine::Arrears::kMost + 5; ++i) owed.add(hash(i), {nullptr, 1, 1s, name(i % 20)});
  owed.add(hash(0), {nullptr, 1, 2s, {}});  // known, so it counts
  return owed.size() == engine::Arrears::kMost && owed.lost() == 5;
}

bool arrears_of_one_owner() {
  engine::Arrears owed;
  constexpr std::size_t kShare = engine::Arrears::kMost / 10;
  for (std::size_t i = 0; i < kShare; ++i) owed.add(hash(i), {nullptr, 1, 1s, "A"});
  const bool full =
      !owed.has_room(hash(kShare), "A") && owed.has_room(hash(0), "A") && owed.has_room(hash(kShare), "B");
  owed.add(hash(kShare), {nullptr, 1, 1s, "A"});
  const bool kept = owed.size() == kShare && owed.lost() == 1;
  return full && kept && owed.take(kShare).size() == kShare && owed.has_room(hash(kShare), "A");
}

bool counted_policies() {
  engine::Counters counters;
  for (std::size_t i = 1; i <= engine::Counters::kMost; ++i) {
    if (counters.id_of(name(i)) == engine::Counters::kOther) return false;
  }
  return counters.id_of("one more") == engine::Counters::kOther && counters.id_of(name(1)) != engine::Counters::kOther;
}

bool says(const CheckDecision& decision, std::string_view text) {
  return decision.why == Why::kInvalid && decision.problem.find(text) != std::string::npos;
}

bool long_names() {
  Bounded it(kPlenty);
  return it.ask(Q("run").agent(std::string(kMaxNameBytes, 'a'))).allowed &&
         says(it.ask(Q("run").agent(std::string(kMaxNameBytes + 1, 'a'))), "agent must be at most 512 bytes long");
}

bool attributes() {
  Bounded it(kPlenty);
  Q most("run");
  for (std::size_t i = 0; i < kMaxAttributes; ++i) most.attr(name(i), Value(true));
  const bool fine = it.ask(most).allowed;
  return fine && says(it.ask(most.attr("one_more", Value(true))), "at most 64 attributes, got 65");
}

bool costs() {
  Bounded it(kPlenty);
  Q most("run");
  for (std::size_t i = 0; i < kMaxCosts; ++i) most.cost(name(i), 1);
  const bool fine = it.ask(most).allowed;
  return fine && says(it.ask(most.cost("one_more", 1)), "at most 8 units, got 9");
}

bool amount() {
  Bounded it("policies: [{id: p, limit: 1/1h}]");
  return it.why(Q("run").cost(kMaxCost)) == Why::kCostExceedsLimit &&
         says(it.ask(Q("run").cost(kMaxCost * 2)), "must be between 0 and 1000000000000");
}

bool matching_policies() {
  std::string yaml = "policies:\n";
  for (std::size_t i = 0; i < store::kMaxCharges; ++i) yaml += "  - {id: " + name(i) + ", limit: 10/1h}\n";
  Bounded most(yaml);
  Bounded more(yaml + "  - {id: more, limit: 10/1h}\n");
  return most.ask(Q("run")).allowed && says(more.ask(Q("run")), "at most 64 limits may apply");
}

// What is wrong with the document.
bool document_says(const std::string& yaml, std::string_view text) {
  const policy::ReadResult result = policy::read_text(yaml, "test.yaml");
  const bool said = std::any_of(result.problems.begin(), result.problems.end(), [&](const policy::Problem& problem) {
    return problem.text().find(text) != std::string::npos;
  });
  if (!said) ADD_FAILURE() << (result.problems.empty() ? "no problem" : result.problems[0].text());
  return said;
}
std::string repeated(std::size_t count, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}
std::string policy_with(const std::string& more) { return "policies: [{id: p, limit: 1/1s, " + more + "}]"; }

const BoundRow kEngine[] = {
    {"open_leases", "further holds are denied (too_many_leases) and charge nothing", open_leases},
    {"waiting_line", "further checks are denied at once (queue_full), each told once", waiting_line},
    {"cells_refused", "refuse_new: new keys are denied and counted, known ones go on", cells_refused},
    {"cells_of_one_agent", "its new keys are denied, counted and told; known ones and other agents go on",
     cells_of_one_agent},
    {"cells_evicted", "evict_oldest: the oldest cells are forgotten and counted", cells_evicted},
    {"allowance_limits", "further limits are refused, known ones go on", allowance_limits},
    {"escalated_subjects", "the subject heard of least lately is forgotten", escalated_subjects},
    {"violating_agents", "the least recent violator is forgotten and counted", violating_agents},
    {"unknown_operations", "further ones are not told of", unknown_operations},
    {"arrears_of_one_owner", "it is denied while the store is unreachable; others are not", arrears_of_one_owner},
    {"arrears", "further cells are not made up for, and counted as lost", arrears},
    {"counted_policies", "further names are counted together", counted_policies},
    {"long_names", "the check is invalid", long_names},
    {"attributes", "the check is invalid", attributes},
    {"costs", "the check is invalid", costs},
    {"amount", "the check is invalid", amount},
    {"matching_policies", "the check is invalid", matching_policies},
};

const BoundRow kDocuments[] = {
    {"document_size", "refused",
     [] { return document_says("#" + std::string(policy::kMaxDocumentBytes, ' '), "must be at most 16 MiB"); }},
    {"policies", "refused",
     [] {
       return document_says("policies: [" + repeated(policy::kMaxPolicies + 1, "1,") + "]",
                            "policies must be at most 100000, got 100001");
     }},
    {"depth", "refused",
     [] { return document_says(std::string(40, '[') + std::string(40, ']'), "must be nested at most 32 deep"); }},
    {"values", "refused; an alias counts as what it stands for",
     [] {
       std::string yaml = "a0: &a0 [" + repeated(50, "x,") + "]\n";
       for (int i = 1; i < 8; ++i) {
         yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
                 repeated(10, "*a" + std::to_string(i - 1) + ",") + "]\n";
       }
       return document_says(yaml, "must have at most 2000000 values");
     }},
    {"documents", "refused", [] { return document_says(repeated(1'002, "--- {}\n"), "at most 1000 documents"); }},
    {"problems", "the rest is summed up in one line",
     [] {
       std::string yaml;
       for (std::size_t i = 0; i < 300; ++i) yaml += name(i) + ": 1\n";
       return policy::read_text(yaml, "test.yaml").problems.size() == policy::kMaxProblems + 1;
     }},
    {"limits_of_a_policy", "refused",
     [] { return document_says("policies: [{id: p, limit: [" + repeated(9, "1/1s,") + "]}]", "8"); }},
    {"variants", "refused",
     [] { return document_says("policies: [{id: p, variants: [" + repeated(17, "{limit: 1/1s},") + "]}]", "16"); }},
    {"key_parts", "refused",
     [] {
       return document_says(policy_with("key: [" + repeated(17, "agent,") + "]"), "key must have at most 16 parts");
     }},
    {"id", "refused",
     [] { return document_says("policies: [{id: " + std::string(129, 'x') + ", limit: 1/1s}]", "128"); }},
    {"message", "refused",
     [] { return document_says(policy_with("message: " + std::string(1'025, 'x')), "at most 1024 bytes"); }},
    {"exempt", "refused",
     [] { return document_says("exempt: [" + repeated(100'001, "x,") + "]", "exempt must have at most 100000"); }},
    {"slots", "refused",
     [] { return document_says("policies: [{id: p, limit: {strategy: concurrency, max: 65537}}]", "65536"); }},
    {"back_off_steps", "refused",
     [] { return document_says("backoff: {steps: [" + repeated(17, "1s,") + "]}", "16"); }},
};

TEST_P(Bounds, IsKept) { EXPECT_TRUE(GetParam().is_kept()); }
INSTANTIATE_TEST_SUITE_P(Engine, Bounds, testing::ValuesIn(kEngine), bound_name);
INSTANTIATE_TEST_SUITE_P(Documents, Bounds, testing::ValuesIn(kDocuments), bound_name);

}  // namespace
}  // namespace headgate::test

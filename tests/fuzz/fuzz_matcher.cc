// Any policies and any check: the index finds exactly the policies whose conditions hold, and the engine answers.
//
// An input is a policy document, a line of "----", then a check in JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/check_json.h"
#include "engine/check_problem.h"
#include "engine/engine.h"
#include "policy/reader.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headgate;
  constexpr std::string_view kBetween = "\n----\n";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t at = input.find(kBetween);
  if (at == std::string_view::npos) return 0;
  policy::ReadResult read = policy::read_text(input.substr(0, at), "fuzz");
  engine::CheckReader reader;
  if (!read.ok() || !reader.read(input.substr(at + kBetween.size()))) return 0;
  const Check& asked = reader.check();

  const policy::Rules rules(read.document, 1);
  for (const bool emergency : {false, true}) {
    const policy::Surroundings surroundings{emergency ? control::LoadLevel::kHigh : control::LoadLevel::kNormal,
                                            emergency};
    policy::Fields fields(asked, rules.hasher());
    fields.set_tier(rules.classify(asked.operation).tier);
    policy::Matched matched;
    rules.match(fields, surroundings, matched);
    const auto found = matched.policies();
    check(std::is_sorted(found.begin(), found.end()));
    for (std::uint32_t i = 0; i < rules.policies().size(); ++i) {
      const bool in_index = std::find(found.begin(), found.end(), i) != found.end();
      const bool holds = rules.why_not(i, fields, surroundings).empty();
      check(in_index == holds || (matched.overflow() && holds));
    }
  }

  ManualClock clock(std::chrono::seconds{1000});
  engine::Engine engine({.clock = &clock});
  if (!engine.load(std::move(read.document))) return 0;
  for (int i = 0; i < 4; ++i) {
    clock.advance(std::chrono::milliseconds{700});
    const engine::CheckDecision decision = engine.check(asked);
    check((decision.why == engine::Why::kInvalid) == !decision.problem.empty());
    check(engine::is_fine(asked) || !decision.allowed);
    check(decision.remaining >= 0 && decision.remaining <= std::max(decision.limit, 0.0));
    check(!decision.reason().empty());
  }
  return 0;
}

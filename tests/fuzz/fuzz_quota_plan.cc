// Any bytes as a quota plan, and as a user's rule: refused line by line, or within bounds and printed as it is read.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "quota/plan.h"

namespace {

using namespace headgate;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_message(std::string_view message) {
  constexpr std::size_t kLongest = 10'000;
  constexpr int kMostLines = 21;
  check(!message.empty() && message.size() < kLongest);
  check(std::count(message.begin(), message.end(), '\n') < kMostLines);
  check(std::none_of(message.begin(), message.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const Result<quota::Plan> plan = quota::plan_of(json, quota::built_in_plans().at("free"));
  if (plan) {
    check(plan->types.contains(quota::kOther) && plan->types.size() <= quota::kMostTypes);
    const Result<quota::Plan> again = quota::plan_of(quota::to_json(*plan), quota::Plan{});
    check(again && *again == *plan);
  } else {
    check_message(plan.error().message);
  }
  const Result<quota::UserRule> rule = quota::rule_of(json, quota::UserRule{});
  if (rule) {
    check(rule->types.size() <= quota::kMostTypes);
    const Result<quota::UserRule> again = quota::rule_of(quota::to_json(*rule), quota::UserRule{});
    check(again && *again == *rule);
  } else {
    check_message(rule.error().message);
  }
  return 0;
}

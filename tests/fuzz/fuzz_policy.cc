// Any bytes as a policy document: it is read or refused with problems in order, and what is read can be described.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "policy/reader.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headgate::policy;
  const ReadResult result = read_text({reinterpret_cast<const char*>(data), size}, "fuzz");
  check(result.problems.size() <= kMaxProblems + 1);
  for (std::size_t i = 0; i < result.problems.size(); ++i) {
    check(!result.problems[i].message.empty());
    if (i == 0 || i == kMaxProblems) continue;
    const Place& before = result.problems[i - 1].place;
    const Place& after = result.problems[i].place;
    check(before.file != after.file || before.line < after.line ||
          (before.line == after.line && before.column <= after.column));
  }
  if (!result.ok()) return 0;
  for (const Policy& policy : result.document.policies) {
    check(!policy.id.empty() && policy.warn_at > 0 && policy.rollout >= 0 && policy.rollout <= 1);
    for (const headgate::Limit& limit : policy.limits) check(!describe(policy, limit).empty());
  }
  check(tier_policies(result.document.tiers).size() == 5);
  return 0;
}

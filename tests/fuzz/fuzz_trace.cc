// Any bytes as a trace: they are refused with the number of a line, or replayed to their end, with an answer to every
// check and time never going back.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "engine/simulate.h"
#include "policy/reader.h"

namespace {

using namespace headgate;

constexpr std::string_view kPolicies = R"(
policies:
  - {id: bucket, limit: {strategy: token_bucket, capacity: 10, refill_rate: 5}}
  - {id: line, match: {operations: ["q*"]}, key: [], limit: 2/1s, behavior: queue, max_wait: 5s}
  - {id: slots, match: {operations: ["slow*"]}, limit: {strategy: concurrency, max: 2, lease_ttl: 30s}}
)";

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const policy::Document document = policy::read_text(kPolicies, "fuzz").document;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  engine::TraceReader trace(in, "trace");
  std::uint64_t answered = 0;
  engine::SimulateOptions options;
  options.on_decided = [&](const engine::Decided& decided) {
    ++answered;
    check(decided.at >= Nanos{0} && decided.decision != nullptr);
  };
  engine::Simulation simulation(std::move(options));
  check(simulation.load(document).has_value());
  Nanos before{0};
  for (;;) {
    const Result<bool> more = trace.next();
    if (!more) check(more.error().message.starts_with("trace:"));
    if (!more || !*more) break;
    check(trace.step().at >= before);
    before = trace.step().at;
    // Files are not for a fuzzer to read.
    if (trace.step().kind == engine::TraceStep::Kind::kPolicies) continue;
    if (!simulation.step(trace.step())) break;
  }
  simulation.finish();
  const engine::SimulationReport report = simulation.report();
  check(answered == report.checks);
  check(report.allowed + report.denied + report.invalid == report.checks);
  return 0;
}

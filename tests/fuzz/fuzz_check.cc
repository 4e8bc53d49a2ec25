// Any bytes as a check: they are refused with a message, or the engine answers what they say, and its answer reads as
// JSON again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/check_json.h"
#include "engine/engine.h"
#include "policy/reader.h"

namespace {

using namespace headgate;

constexpr std::string_view kPolicies = R"(
policies:
  - {id: bucket, limit: {strategy: token_bucket, capacity: 10, refill_rate: 5}}
  - {id: window, key: [user, "attr:kind"], match: {attributes: {kind: ["*"]}}, limit: 5/60s, missing: match}
  - {id: spend, unit: usd, key: [], limit: 5/1h, action: warn}
  - {id: slots, match: {operations: ["slow*"]}, limit: {strategy: concurrency, max: 2, lease_ttl: 30s}}
)";

void check(bool holds) {
  if (!holds) std::abort();
}

// Enough of JSON to see that braces, quotes and escapes are balanced and no control character is left.
bool looks_like_json(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) < 0x20) return false;
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth == 0) return i + 1 == text.size();
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ManualClock clock(std::chrono::seconds{1'000'000});
  static engine::Engine engine({.clock = &clock, .max_cells = 10'000, .seed = 1, .max_leases = 100});
  static engine::CheckReader reader;
  static const bool loaded = engine.load(policy::read_text(kPolicies, "fuzz").document).has_value();
  check(loaded);

  const Result<void> read = reader.read({reinterpret_cast<const char*>(data), size});
  if (!read) {
    check(!read.error().message.empty() && read.error().message.size() < 1000);
    return 0;
  }
  clock.advance(std::chrono::milliseconds{100});
  std::string out;
  engine::append_json(engine.check(reader.check()), out);
  check(looks_like_json(out));
  return 0;
}

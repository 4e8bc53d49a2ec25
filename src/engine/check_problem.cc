#include "engine/check_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/utf8.h"

namespace headgate::engine {
namespace {

constexpr std::pair<const char*, std::string_view Check::*> kFields[] = {{"operation", &Check::operation},
                                                                         {"agent", &Check::agent},
                                                                         {"session", &Check::session},
                                                                         {"user", &Check::user},
                                                                         {"tenant", &Check::tenant},
                                                                         {"plan", &Check::plan},
                                                                         {"channel", &Check::channel},
                                                                         {"ip", &Check::ip},
                                                                         {"context.type", &Check::context},
                                                                         {"resource", &Check::resource},
                                                                         {"parent.session", &Check::parent_session},
                                                                         {"parent.agent", &Check::parent_agent}};

std::string too_long(const std::string& what, std::size_t size) {
  return fmt::format("{} must be at most {} bytes long, got {}", what, kMaxNameBytes, size);
}

std::string not_utf8(const std::string& what) { return what + " must be UTF-8 text"; }

// All bytes of a text, one over the other: a top bit is set if, and only if, one of them is not ASCII.
inline std::uint64_t overlaid(std::string_view text) noexcept {
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t all = 0;
  for (; left >= sizeof all; left -= sizeof all, at += sizeof all) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    all |= word;
  }
  for (; left > 0; --left, ++at) all |= static_cast<unsigned char>(*at);
  return all;
}
constexpr std::uint64_t kTopBits = 0x8080808080808080;

bool names_fit(const Check& check) noexcept {
  const auto fits = [](std::string_view name) { return name.size() <= kMaxNameBytes && base::is_utf8(name); };
  return std::all_of(std::begin(kFields), std::end(kFields),
                     [&](const auto& each) { return fits(check.*each.second); }) &&
         std::all_of(check.attributes.begin(), check.attributes.end(),
                     [&](const Attribute& each) { return fits(each.name) && fits(each.value.text); }) &&
         std::all_of(check.costs.begin(), check.costs.end(), [&](const Cost& each) { return fits(each.unit); });
}

}  // namespace

bool is_fine(const Check& check) noexcept {
  if (check.operation.empty() || check.attributes.size() > kMaxAttributes || check.costs.size() > kMaxCosts)
    return false;
  // All bits of all sizes: below a power of two if, and only if, each of them is.
  static_assert(std::has_single_bit(kMaxNameBytes));
  std::size_t sizes = check.operation.size() | check.agent.size() | check.session.size() | check.user.size() |
                      check.tenant.size() | check.plan.size() | check.channel.size() | check.ip.size() |
                      check.context.size() | check.resource.size() | check.parent_session.size() |
                      check.parent_agent.size();
  std::uint64_t bytes = 0;
  for (const auto& each : kFields) bytes |= overlaid(check.*each.second);
  for (const Attribute& attribute : check.attributes) {
    if (attribute.name.empty()) return false;
    sizes |= attribute.name.size() | attribute.value.text.size();
    bytes |= overlaid(attribute.name) | overlaid(attribute.value.text);
    if (attribute.value.kind == Value::Kind::kNumber && !std::isfinite(attribute.value.number)) return false;
  }
  for (const Cost& cost : check.costs) {
    if (cost.unit.empty() || !(cost.amount >= 0) || cost.amount > kMaxCost) return false;
    sizes |= cost.unit.size();
    bytes |= overlaid(cost.unit);
  }
  return ((sizes < kMaxNameBytes && (bytes & kTopBits) == 0) || names_fit(check)) && check.max_wait >= Nanos{0};
}

std::string problem_of(const Check& check) {
  if (check.operation.empty()) return "operation is required: what does the agent want to do?";
  for (const auto& [name, field] : kFields) {
    if ((check.*field).size() > kMaxNameBytes) return too_long(name, (check.*field).size());
    if (!base::is_utf8(check.*field)) return not_utf8(name);
  }
  if (check.attributes.size() > kMaxAttributes) {
    return fmt::format("context must have at most {} attributes, got {}", kMaxAttributes, check.attributes.size());
  }
  for (const Attribute& attribute : check.attributes) {
    if (attribute.name.empty()) return "context must not have an attribute without a name";
    if (attribute.name.size() > kMaxNameBytes) return too_long("an attribute's name", attribute.name.size());
    if (!base::is_utf8(attribute.name)) return not_utf8("an attribute's name");
    if (attribute.value.text.size() > kMaxNameBytes) {
      return too_long("context." + base::shortened(attribute.name, kShown), attribute.value.text.size());
    }
    if (!base::is_utf8(attribute.value.text)) return not_utf8("context." + base::shortened(attribute.name, kShown));
    if (attribute.value.kind == Value::Kind::kNumber && !std::isfinite(attribute.value.number)) {
      return fmt::format("context.{} must be a finite number, got {}", base::shortened(attribute.name, kShown),
                         attribute.value.number);
    }
  }
  if (check.costs.size() > kMaxCosts) {
    return fmt::format("cost must have at most {} units, got {}", kMaxCosts, check.costs.size());
  }
  for (const Cost& cost : check.costs) {
    if (cost.unit.empty()) return "cost must not have a unit without a name";
    if (cost.unit.size() > kMaxNameBytes) return too_long("a unit of cost", cost.unit.size());
    if (!base::is_utf8(cost.unit)) return not_utf8("a unit of cost");
    if (!(cost.amount >= 0) || cost.amount > kMaxCost) {
      return fmt::format("cost.{} must be between 0 and {:.0f}, got {}", base::shortened(cost.unit, kShown), kMaxCost,
                         cost.amount);
    }
  }
  return fmt::format("max_wait_ms must not be negative, got {}", check.max_wait.count() / 1'000'000);
}

}  // namespace headgate::engine

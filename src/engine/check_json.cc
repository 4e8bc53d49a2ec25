#include "engine/check_json.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <utility>

#include "base/json_pen.h"

namespace headgate::engine {
namespace {

using base::append_json_number;
using base::append_json_text;
using base::JsonPen;

constexpr std::int64_t kNanosPerMilli = 1'000'000;

std::int64_t millis_rounded_up(Nanos span) noexcept { return (span.count() + kNanosPerMilli - 1) / kNanosPerMilli; }

void write_millis(Nanos span, JsonPen& pen) { pen.number(millis_rounded_up(span)); }

void write_policy_ids(const CheckDecision& decision, JsonPen& pen) {
  pen.put(",\"policy_ids\":[");
  for (std::size_t i = 0; i < decision.judged.size(); ++i) {
    const std::uint32_t policy = decision.judged[i].policy;
    bool before = false;  // for the parent, or for the check itself
    for (std::size_t j = 0; j < i && !before; ++j) before = decision.judged[j].policy == policy;
    if (before) continue;
    if (i > 0) pen.put(',');
    pen.string(decision.policy(policy).id);
  }
  pen.put(']');
}

std::string warning_text(const Warning& warning, const policy::Policy& policy) {
  if (!policy.message.empty()) return policy.message;
  std::string left;
  append_json_number(to_millionths(warning.remaining), left);
  left += " of ";
  append_json_number(to_millionths(warning.capacity), left);
  left += " left";
  const double used = warning.capacity > 0 ? 100 * (1 - warning.remaining / warning.capacity) : 100;
  switch (warning.kind) {
    case Warning::Kind::kApproaching: return fmt::format("{:.0f} % of {} used, {}", used, policy.id, left);
    case Warning::Kind::kExceeded: return fmt::format("{} is exceeded, {}", policy.id, left);
    case Warning::Kind::kBurst: return fmt::format("{} is past its limit, within its burst allowance", policy.id);
    case Warning::Kind::kMonitor: return fmt::format("{} would have denied this, but is only monitored", policy.id);
  }
  return left;
}

void write_warnings(const CheckDecision& decision, JsonPen& pen) {
  pen.put(",\"warnings\":[");
  bool first = true;
  for (const Warning& warning : decision.warnings) {
    const policy::Policy& policy = decision.policy(warning.policy);
    if (!std::exchange(first, false)) pen.put(',');
    pen.put("{\"policy_id\":");
    pen.string(policy.id);
    pen.put(",\"kind\":");
    pen.string(to_string(warning.kind));
    pen.put(",\"remaining\":");
    pen.real(to_millionths(warning.remaining));
    pen.put(",\"capacity\":");
    pen.real(to_millionths(warning.capacity));
    pen.put(",\"message\":");
    pen.string(warning_text(warning, policy));
    pen.put('}');
  }
  pen.put(']');
}

}  // namespace

Result<void> MessageReader::only(FieldSet allowed, std::string_view what) const {
  const FieldSet others = fields_.given & ~allowed;
  if (others == 0) return {};
  return unknown_field(name_of(static_cast<Field>(std::countr_zero(others))), allowed, what);
}

void MessageReader::append_id(std::string& out) const {
  if (!fields_.has(Field::kId)) return;
  out += ",\"id\":";
  if (fields_.id.kind == Scalar::Kind::kText) {
    append_json_text(fields_.id.text, out);
  } else {
    fmt::format_to(std::back_inserter(out), "{}", fields_.id.integer);
  }
}

double to_millionths(double amount) noexcept {
  constexpr double kMillion = 1e6;
  constexpr double kNoisyBelow = 1e9;  // from here on a double has no millionths to be wrong about
  if (amount == std::floor(amount)) return amount;
  return std::abs(amount) < kNoisyBelow ? std::round(amount * kMillion) / kMillion : amount;
}

void append_json(const CheckDecision& decision, std::string& out, const DecisionFormat& format) {
  JsonPen pen(out);
  if (decision.why == Why::kInvalid) {
    pen.put(R"({"error":"invalid_check","message":)");
    pen.string(decision.problem);
    pen.put('}');
    return;
  }
  if (decision.allowed) {
    pen.put(R"({"allowed":true,"action":")");
  } else {
    pen.put(R"({"allowed":false,"action":")");
  }
  pen.text(decision.action_text());
  pen.put(R"(","reason":)");
  if (const std::string_view fixed = decision.fixed_reason(); !fixed.empty()) {
    pen.string(fixed);
  } else {
    pen.string(decision.reason());
  }
  if (!decision.allowed) {
    if (const policy::Policy* by = decision.denied_by()) {
      pen.put(R"(,"policy_id":)");
      pen.string(by->id);
      if (!by->message.empty()) {
        pen.put(R"(,"message":)");
        pen.string(by->message);
      }
    }
    if (!decision.error().empty()) {
      pen.put(R"(,"error":)");
      pen.string(decision.error());
    }
  }
  write_policy_ids(decision, pen);
  // No limit is zero: there was none to speak of.
  if (decision.limit > 0) {
    pen.put(R"(,"limit":)");
    pen.real(to_millionths(decision.limit));
    pen.put(R"(,"remaining":)");
    pen.real(to_millionths(decision.remaining));
  } else {
    pen.put(R"(,"limit":null,"remaining":null)");
  }
  pen.put(R"(,"reset_time":)");
  write_millis(decision.reset_time(), pen);
  pen.put(R"(,"retry_after_ms":)");
  if (decision.retry_after == kNever) {
    pen.put("-1");
  } else {
    write_millis(decision.allowed ? Nanos{0} : decision.retry_after, pen);
  }
  if (decision.backoff > Nanos{0}) {
    pen.put(R"(,"backoff_ms":)");
    write_millis(decision.backoff, pen);
  }
  const bool waited_too = format.add_wait && decision.allowed;
  pen.put(R"(,"delay_ms":)");
  write_millis(decision.delay + (waited_too ? decision.waited : Nanos{0}), pen);
  if (decision.waited > Nanos{0}) {
    pen.put(R"(,"waited_ms":)");
    write_millis(decision.waited, pen);
  }
  pen.put(R"(,"throttle_factor":)");
  pen.real(decision.throttle_factor);
  if (decision.stand_in) [[unlikely]]
    pen.put(R"(,"stand_in":true)");
  if (!decision.tier.empty()) {
    pen.put(R"(,"tier":)");
    pen.string(decision.tier);
  }
  write_warnings(decision, pen);
  if (decision.lease.empty()) {
    pen.put(R"(,"lease":null})");
  } else {
    pen.put(R"(,"lease":)");
    pen.string(format.lease.empty() ? std::string_view(decision.lease) : format.lease);
    pen.put('}');
  }
}

}  // namespace headgate::engine

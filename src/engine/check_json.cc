#include "engine/check_json.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/pen.h"

namespace headgate::engine {
namespace {

using base::Pen;

constexpr std::int64_t kNanosPerMilli = 1'000'000;

std::int64_t millis_rounded_up(Nanos span) noexcept { return (span.count() + kNanosPerMilli - 1) / kNanosPerMilli; }

constexpr double kExactBelow = 9e15;  // whole numbers that a double has exactly

// Which bytes JSON text may not have as they are.
constexpr std::array<bool, 256> kEscaped = [] {
  std::array<bool, 256> escaped{};
  for (std::size_t c = 0; c < 0x20; ++c) escaped[c] = true;
  escaped[0x7F] = escaped['"'] = escaped['\\'] = true;
  return escaped;
}();

void write_text(std::string_view text, Pen& pen) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  pen.put('"');
  std::size_t begin = 0;  // of what has not been written yet; most text is written in one piece
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (!kEscaped[byte]) continue;
    pen.text(text.substr(begin, i - begin));
    begin = i + 1;
    switch (text[i]) {
      case '"': pen.put("\\\""); break;
      case '\\': pen.put("\\\\"); break;
      case '\n': pen.put("\\n"); break;
      case '\r': pen.put("\\r"); break;
      case '\t': pen.put("\\t"); break;
      default:
        pen.put("\\u00");
        pen.put(kDigits[byte >> 4]);
        pen.put(kDigits[byte & 15]);
    }
  }
  pen.text(text.substr(begin));
  pen.put('"');
}

void write_number(double number, Pen& pen) {
  if (std::abs(number) < kExactBelow && number == static_cast<double>(static_cast<std::int64_t>(number))) {
    pen.number(static_cast<std::int64_t>(number));
  } else if (std::isfinite(number)) {
    pen.fraction(number);
  } else {
    pen.put("null");
  }
}

void write_millis(Nanos span, Pen& pen) { pen.number(millis_rounded_up(span)); }

void write_policy_ids(const CheckDecision& decision, Pen& pen) {
  pen.put(",\"policy_ids\":[");
  for (std::size_t i = 0; i < decision.judged.size(); ++i) {
    const std::uint32_t policy = decision.judged[i].policy;
    bool before = false;  // for the parent, or for the check itself
    for (std::size_t j = 0; j < i && !before; ++j) before = decision.judged[j].policy == policy;
    if (before) continue;
    if (i > 0) pen.put(',');
    write_text(decision.policy(policy).id, pen);
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

void write_warnings(const CheckDecision& decision, Pen& pen) {
  pen.put(",\"warnings\":[");
  bool first = true;
  for (const Warning& warning : decision.warnings) {
    const policy::Policy& policy = decision.policy(warning.policy);
    if (!std::exchange(first, false)) pen.put(',');
    pen.put("{\"policy_id\":");
    write_text(policy.id, pen);
    pen.put(",\"kind\":");
    write_text(to_string(warning.kind), pen);
    pen.put(",\"remaining\":");
    write_number(to_millionths(warning.remaining), pen);
    pen.put(",\"capacity\":");
    write_number(to_millionths(warning.capacity), pen);
    pen.put(",\"message\":");
    write_text(warning_text(warning, policy), pen);
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

void append_json_text(std::string_view text, std::string& out) {
  Pen pen(out);
  write_text(text, pen);
}

void append_json_number(double number, std::string& out) {
  Pen pen(out);
  write_number(number, pen);
}

double to_millionths(double amount) noexcept {
  constexpr double kMillion = 1e6;
  constexpr double kNoisyBelow = 1e9;  // from here on a double has no millionths to be wrong about
  if (amount == std::floor(amount)) return amount;
  return std::abs(amount) < kNoisyBelow ? std::round(amount * kMillion) / kMillion : amount;
}

void append_json(const CheckDecision& decision, std::string& out, const DecisionFormat& format) {
  Pen pen(out);
  if (decision.why == Why::kInvalid) {
    pen.put(R"({"error":"invalid_check","message":)");
    write_text(decision.problem, pen);
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
    write_text(fixed, pen);
  } else {
    write_text(decision.reason(), pen);
  }
  if (!decision.allowed) {
    if (const policy::Policy* by = decision.denied_by()) {
      pen.put(R"(,"policy_id":)");
      write_text(by->id, pen);
      if (!by->message.empty()) {
        pen.put(R"(,"message":)");
        write_text(by->message, pen);
      }
    }
    if (!decision.error().empty()) {
      pen.put(R"(,"error":)");
      write_text(decision.error(), pen);
    }
  }
  write_policy_ids(decision, pen);
  // No limit is zero: there was none to speak of.
  if (decision.limit > 0) {
    pen.put(R"(,"limit":)");
    write_number(to_millionths(decision.limit), pen);
    pen.put(R"(,"remaining":)");
    write_number(to_millionths(decision.remaining), pen);
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
  write_number(decision.throttle_factor, pen);
  if (decision.stand_in) [[unlikely]]
    pen.put(R"(,"stand_in":true)");
  if (!decision.tier.empty()) {
    pen.put(R"(,"tier":)");
    write_text(decision.tier, pen);
  }
  write_warnings(decision, pen);
  if (decision.lease.empty()) {
    pen.put(R"(,"lease":null})");
  } else {
    pen.put(R"(,"lease":)");
    write_text(format.lease.empty() ? std::string_view(decision.lease) : format.lease, pen);
    pen.put('}');
  }
}

}  // namespace headgate::engine

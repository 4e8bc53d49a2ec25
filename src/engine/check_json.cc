#include "engine/check_json.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace headgate::engine {
namespace {

constexpr std::int64_t kNanosPerMilli = 1'000'000;

std::int64_t millis_rounded_up(Nanos span) noexcept { return (span.count() + kNanosPerMilli - 1) / kNanosPerMilli; }

void append_key(std::string_view key, std::string& out) {
  out += ",\"";
  out += key;
  out += "\":";
}

void append_millis(std::string_view key, Nanos span, std::string& out) {
  append_key(key, out);
  fmt::format_to(std::back_inserter(out), "{}", millis_rounded_up(span));
}

void append_policy_ids(const CheckDecision& decision, std::string& out) {
  append_key("policy_ids", out);
  out += '[';
  for (std::size_t i = 0; i < decision.judged.size(); ++i) {
    const std::uint32_t policy = decision.judged[i].policy;
    bool before = false;  // for the parent, or for the check itself
    for (std::size_t j = 0; j < i && !before; ++j) before = decision.judged[j].policy == policy;
    if (before) continue;
    if (i > 0) out += ',';
    append_json_text(decision.policy(policy).id, out);
  }
  out += ']';
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

void append_warnings(const CheckDecision& decision, std::string& out) {
  append_key("warnings", out);
  out += '[';
  for (const Warning& warning : decision.warnings) {
    const policy::Policy& policy = decision.policy(warning.policy);
    out += out.back() == '[' ? "{\"policy_id\":" : ",{\"policy_id\":";
    append_json_text(policy.id, out);
    append_key("kind", out);
    append_json_text(to_string(warning.kind), out);
    append_key("remaining", out);
    append_json_number(to_millionths(warning.remaining), out);
    append_key("capacity", out);
    append_json_number(to_millionths(warning.capacity), out);
    append_key("message", out);
    append_json_text(warning_text(warning, policy), out);
    out += '}';
  }
  out += ']';
}

}  // namespace

Result<void> MessageReader::only(FieldSet allowed, std::string_view what) const {
  const FieldSet others = fields_.given & ~allowed;
  if (others == 0) return {};
  return unknown_field(name_of(static_cast<Field>(std::countr_zero(others))), allowed, what);
}

void MessageReader::append_id(std::string& out) const {
  if (!fields_.has(Field::kId)) return;
  append_key("id", out);
  if (fields_.id.kind == Scalar::Kind::kText) {
    append_json_text(fields_.id.text, out);
  } else {
    fmt::format_to(std::back_inserter(out), "{}", fields_.id.integer);
  }
}

void append_json_text(std::string_view text, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte >= 0x20 && byte != 0x7F) {
          out += c;
        } else {
          out += "\\u00";
          out += kDigits[byte >> 4];
          out += kDigits[byte & 15];
        }
    }
  }
  out += '"';
}

void append_json_number(double number, std::string& out) {
  constexpr double kExactBelow = 9e15;
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  std::array<char, 32> text;
  const bool whole = number == std::floor(number) && std::abs(number) < kExactBelow;
  const auto end = whole ? std::to_chars(text.data(), text.data() + text.size(), static_cast<std::int64_t>(number)).ptr
                         : std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  out.append(text.data(), end);
}

double to_millionths(double amount) noexcept {
  constexpr double kMillion = 1e6;
  constexpr double kNoisyBelow = 1e9;  // from here on a double has no millionths to be wrong about
  return std::abs(amount) < kNoisyBelow ? std::round(amount * kMillion) / kMillion : amount;
}

void append_json(const CheckDecision& decision, std::string& out, const DecisionFormat& format) {
  if (decision.why == Why::kInvalid) {
    out += R"({"error":"invalid_check","message":)";
    append_json_text(decision.problem, out);
    out += '}';
    return;
  }
  out += decision.allowed ? R"({"allowed":true,"action":)" : R"({"allowed":false,"action":)";
  append_json_text(decision.action_text(), out);
  append_key("reason", out);
  if (const std::string_view fixed = decision.fixed_reason(); !fixed.empty()) {
    append_json_text(fixed, out);
  } else {
    append_json_text(decision.reason(), out);
  }
  if (!decision.allowed) {
    if (const policy::Policy* by = decision.denied_by()) {
      append_key("policy_id", out);
      append_json_text(by->id, out);
      if (!by->message.empty()) {
        append_key("message", out);
        append_json_text(by->message, out);
      }
    }
    if (!decision.error().empty()) {
      append_key("error", out);
      append_json_text(decision.error(), out);
    }
  }
  append_policy_ids(decision, out);
  // No limit is zero: there was none to speak of.
  const bool limited = decision.limit > 0;
  for (const auto& [key, number] : {std::pair{"limit", decision.limit}, {"remaining", decision.remaining}}) {
    append_key(key, out);
    if (limited) {
      append_json_number(to_millionths(number), out);
    } else {
      out += "null";
    }
  }
  append_millis("reset_time", decision.reset_time(), out);
  if (decision.retry_after == kNever) {
    append_key("retry_after_ms", out);
    out += "-1";
  } else {
    append_millis("retry_after_ms", decision.allowed ? Nanos{0} : decision.retry_after, out);
  }
  const bool waited_too = format.add_wait && decision.allowed;
  append_millis("delay_ms", decision.delay + (waited_too ? decision.waited : Nanos{0}), out);
  if (decision.waited > Nanos{0}) append_millis("waited_ms", decision.waited, out);
  append_key("throttle_factor", out);
  append_json_number(decision.throttle_factor, out);
  if (!decision.tier.empty()) {
    append_key("tier", out);
    append_json_text(decision.tier, out);
  }
  append_warnings(decision, out);
  append_key("lease", out);
  if (decision.lease.empty()) {
    out += "null";
  } else {
    append_json_text(format.lease.empty() ? std::string_view(decision.lease) : format.lease, out);
  }
  out += '}';
}

}  // namespace headgate::engine

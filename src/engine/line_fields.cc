#include "engine/line_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/rfc3339.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "engine/check_problem.h"

namespace headgate::engine {
namespace {

constexpr std::array<std::string_view, kFieldCount> kNames{
    "operation", "agent",       "session", "user",   "tenant",      "plan",  "channel",  "ip",     "resource",
    "context",   "contextType", "cost",    "peek",   "max_wait_ms", "hold",  "priority", "parent", "t",
    "time",      "event",       "load",    "reason", "by",          "lease", "file",     "remove", "light",
    "normal",    "heavy",       "type",    "id",     "token",       "lease"};

constexpr double kLongestWaitMs = 31'536'000'000;  // a year
constexpr std::int64_t kMostPriority = 1'000'000;
constexpr double kMillion = 1e6;

std::string full_name(Field field, std::string_view part) {
  return part.empty() ? std::string(name_of(field))
                      : fmt::format("{}.{}", name_of(field), base::shortened(part, kShown));
}

std::string shown(const Scalar& value) {
  switch (value.kind) {
    case Scalar::Kind::kText:
    case Scalar::Kind::kUntyped: return fmt::format("\"{}\"", base::shortened(value.text, kShown));
    case Scalar::Kind::kInteger: return std::to_string(value.integer);
    case Scalar::Kind::kNumber: return fmt::format("{}", value.number);
    case Scalar::Kind::kBoolean: return value.boolean ? "true" : "false";
    case Scalar::Kind::kOther: break;
  }
  return std::string(value.text);
}

Error must_be(Field field, std::string_view part, std::string_view what, const Scalar& value) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} must be {}, got {}", full_name(field, part), what, shown(value))};
}

// What a table's cell says, if it is to be a number.
Scalar typed(const Scalar& value) {
  if (value.kind != Scalar::Kind::kUntyped) return value;
  Scalar read = value;
  const char* end = value.text.data() + value.text.size();
  if (const auto whole = std::from_chars(value.text.data(), end, read.integer);
      whole.ec == std::errc{} && whole.ptr == end) {
    read.kind = Scalar::Kind::kInteger;
    read.number = static_cast<double>(read.integer);
    return read;
  }
  const auto any = std::from_chars(value.text.data(), end, read.number);
  if (any.ec == std::errc{} && any.ptr == end && std::isfinite(read.number)) read.kind = Scalar::Kind::kNumber;
  return read;
}

bool is_number(const Scalar& value) noexcept {
  return value.kind == Scalar::Kind::kInteger || value.kind == Scalar::Kind::kNumber;
}

Result<double> number(Field field, std::string_view part, const Scalar& given, double least, double most) {
  const Scalar value = typed(given);
  if (is_number(value) && value.number >= least && value.number <= most) return value.number;
  return must_be(field, part, fmt::format("between {:.0f} and {:.0f}", least, most), value);
}

Result<std::int64_t> integer(Field field, std::string_view part, const Scalar& given, std::int64_t least,
                             std::int64_t most) {
  Scalar value = typed(given);
  const bool whole =
      value.kind == Scalar::Kind::kNumber && value.number == std::floor(value.number) && std::abs(value.number) < 9e15;
  if (whole) value.integer = static_cast<std::int64_t>(value.number);
  const bool fits = (whole || value.kind == Scalar::Kind::kInteger) && value.integer >= least && value.integer <= most;
  if (fits) return value.integer;
  return must_be(field, part, fmt::format("a whole number between {} and {}", least, most), value);
}

Result<void> take_text(Field field, std::string_view part, const Scalar& value, std::string_view& out) {
  if (value.kind != Scalar::Kind::kText && value.kind != Scalar::Kind::kUntyped) {
    return must_be(field, part, "text", value);
  }
  out = value.text;
  return {};
}

Result<void> take_boolean(Field field, const Scalar& value, bool& out) {
  const bool untyped = value.kind == Scalar::Kind::kUntyped && (value.text == "true" || value.text == "false");
  if (!untyped && value.kind != Scalar::Kind::kBoolean) return must_be(field, {}, "true or false", value);
  out = untyped ? value.text == "true" : value.boolean;
  return {};
}

// The id by which a client tells its requests apart: repeated as it came, so it must have one spelling.
Result<void> take_id(const Scalar& value, Scalar& out) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  constexpr std::size_t kLongest = 128;
  const bool number = value.kind == Scalar::Kind::kInteger && value.integer >= -kMost && value.integer <= kMost;
  const bool text = value.kind == Scalar::Kind::kText && value.text.size() <= kLongest;
  if (!number && !text) {
    return must_be(Field::kId, {},
                   fmt::format("a whole number within 2^53 of 0, or text of at most {} bytes", kLongest), value);
  }
  out = value;
  return {};
}

// Milliseconds, exact for every whole number of them.
Result<void> take_instant(Field field, const Scalar& given, Nanos& out) {
  constexpr std::int64_t kMilli = 1'000'000;
  constexpr std::int64_t kMost = kMaxTime.count() / kMilli;
  const Scalar value = typed(given);
  if (value.kind == Scalar::Kind::kInteger && value.integer >= 0 && value.integer <= kMost) {
    out = Nanos{value.integer * kMilli};
    return {};
  }
  if (value.kind == Scalar::Kind::kNumber && value.number >= 0 && value.number <= static_cast<double>(kMost)) {
    const double whole = std::floor(value.number);
    out = Nanos{static_cast<std::int64_t>(whole) * kMilli + std::llround((value.number - whole) * kMillion)};
    return {};
  }
  if (field == Field::kTime && !is_number(value)) {
    if (const auto instant = base::parse_rfc3339(value.text)) {
      out = *instant;
      return {};
    }
    return must_be(field, {}, "epoch milliseconds or an instant such as 2026-03-28T15:00:00Z", value);
  }
  return must_be(field, {}, fmt::format("milliseconds between 0 and {}", kMost), value);
}

}  // namespace

std::string_view name_of(Field field) noexcept { return kNames[static_cast<std::size_t>(field)]; }

std::optional<Field> field_named(std::string_view name, FieldSet allowed) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name && (allowed >> i & 1) != 0) return static_cast<Field>(i);
  }
  return std::nullopt;
}

Error unknown_field(std::string_view name, FieldSet allowed, std::string_view what) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if ((allowed >> i & 1) != 0) names.emplace_back(kNames[i]);
  }
  return {ErrorCode::kInvalidArgument, fmt::format("there is no field \"{}\" in {}{}", base::shortened(name, kShown),
                                                   what, base::did_you_mean(name, names))};
}

bool LineFields::has_parts(Field field) noexcept {
  switch (field) {
    case Field::kContext:
    case Field::kCost:
    case Field::kParent:
    case Field::kLight:
    case Field::kNormal:
    case Field::kHeavy: return true;
    default: return false;
  }
}

void LineFields::clear() noexcept {
  if (given == 0) return;
  given = 0;
  check = {};
  attributes.clear();
  costs.clear();
  remove = false;
  event = reason = by = file = type = token = lease_id = {};
  tiers = {};
}

Result<void> LineFields::set(Field field, std::string_view part, const Scalar& value) {
  given |= set_of(field);
  switch (field) {
    case Field::kOperation: return take_text(field, {}, value, check.operation);
    case Field::kAgent: return take_text(field, {}, value, check.agent);
    case Field::kSession: return take_text(field, {}, value, check.session);
    case Field::kUser: return take_text(field, {}, value, check.user);
    case Field::kTenant: return take_text(field, {}, value, check.tenant);
    case Field::kPlan: return take_text(field, {}, value, check.plan);
    case Field::kChannel: return take_text(field, {}, value, check.channel);
    case Field::kIp: return take_text(field, {}, value, check.ip);
    case Field::kResource: return take_text(field, {}, value, check.resource);
    case Field::kEvent: return take_text(field, {}, value, event);
    case Field::kReason: return take_text(field, {}, value, reason);
    case Field::kBy: return take_text(field, {}, value, by);
    case Field::kFile: return take_text(field, {}, value, file);
    case Field::kType: return take_text(field, {}, value, type);
    case Field::kToken: return take_text(field, {}, value, token);
    case Field::kLeaseId: return take_text(field, {}, value, lease_id);
    case Field::kId: {
      Result<void> taken = take_id(value, id);
      if (!taken) given &= ~set_of(field);  // or the answer would repeat an earlier one
      return taken;
    }
    case Field::kPeek: return take_boolean(field, value, check.peek);
    case Field::kHold: return take_boolean(field, value, check.hold);
    case Field::kRemove: return take_boolean(field, value, remove);
    case Field::kT: return take_instant(field, value, t);
    case Field::kTime: return take_instant(field, value, time);
    case Field::kContextType:
    case Field::kContext: {
      if (field == Field::kContextType || part == "type") {
        const std::string_view before = check.context;
        if (Result<void> taken = take_text(field, part, value, check.context); !taken) return taken;
        if (before.empty() || before == check.context) return {};
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("contextType and context.type must be the same, got \"{}\" and \"{}\"",
                                 base::shortened(before, kShown), base::shortened(check.context, kShown))};
      }
      if (part.empty()) return must_be(field, part, "an object", value);
      if (attributes.size() >= kMaxAttributes) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("context must have at most {} attributes besides its type, got more", kMaxAttributes)};
      }
      for (const Attribute& other : attributes) {
        if (other.name != part) continue;
        return Error{ErrorCode::kInvalidArgument, full_name(field, part) + " must be given once, is given twice"};
      }
      switch (value.kind) {
        case Scalar::Kind::kText: attributes.push_back({part, Value(value.text)}); return {};
        case Scalar::Kind::kInteger:
        case Scalar::Kind::kNumber: attributes.push_back({part, Value(value.number)}); return {};
        case Scalar::Kind::kBoolean: attributes.push_back({part, Value(value.boolean)}); return {};
        case Scalar::Kind::kUntyped:
          attributes.push_back(
              {part, value.text == "true" || value.text == "false" ? Value(value.text == "true") : Value(value.text)});
          return {};
        case Scalar::Kind::kOther: break;
      }
      return must_be(field, part, "text, a number, true or false", value);
    }
    case Field::kCost: {
      const Result<double> amount = number(field, part, value, 0, kMaxCost);
      if (!amount) return amount.error();
      const std::string_view unit = part.empty() ? std::string_view("requests") : part;
      if (costs.size() >= kMaxCosts) {
        return Error{ErrorCode::kInvalidArgument, fmt::format("cost must have at most {} units, got more", kMaxCosts)};
      }
      for (const Cost& other : costs) {
        if (other.unit != unit) continue;
        return Error{ErrorCode::kInvalidArgument, full_name(field, unit) + " must be given once, is given twice"};
      }
      costs.push_back({unit, *amount});
      return {};
    }
    case Field::kMaxWait: {
      const Result<double> wait = number(field, {}, value, 0, kLongestWaitMs);
      if (!wait) return wait.error();
      check.max_wait = Nanos{std::llround(*wait * kMillion)};
      return {};
    }
    case Field::kPriority: {
      const Result<std::int64_t> priority = integer(field, {}, value, -kMostPriority, kMostPriority);
      if (!priority) return priority.error();
      check.priority = static_cast<int>(*priority);
      return {};
    }
    case Field::kParent:
      if (part.empty() || part == "session") return take_text(field, part, value, check.parent_session);
      if (part == "agent") return take_text(field, part, value, check.parent_agent);
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("parent must have agent and session, got \"{}\"", base::shortened(part, kShown))};
    case Field::kLoad: {
      const Result<double> level = number(field, {}, value, 0, 1);
      if (!level) return level.error();
      load = *level;
      return {};
    }
    case Field::kLease: {
      const Result<std::int64_t> index = integer(field, {}, value, 0, std::int64_t{1} << 53);
      if (!index) return index.error();
      lease = static_cast<std::uint64_t>(*index);
      return {};
    }
    case Field::kLight:
    case Field::kNormal:
    case Field::kHeavy: {
      Tier& tier = tiers[static_cast<std::size_t>(field) - static_cast<std::size_t>(Field::kLight)];
      Units* number_of = part == "capacity"            ? &tier.capacity
                         : part == "refill_per_minute" ? &tier.refill_per_minute
                                                       : nullptr;
      if (part.empty()) return must_be(field, part, "an object", value);
      if (number_of == nullptr) {
        return Error{ErrorCode::kInvalidArgument, fmt::format("{} must have capacity and refill_per_minute, got \"{}\"",
                                                              name_of(field), base::shortened(part, kShown))};
      }
      const Result<std::int64_t> units = integer(field, part, value, 1, 1'000'000'000);
      if (!units) return units.error();
      *number_of = *units;
      return {};
    }
  }
  return {};
}

}  // namespace headgate::engine

#include "api/http/limit_headers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "base/pen.h"

namespace headgate::api {
namespace {

using base::Pen;
using engine::CheckDecision;
using engine::Judged;

constexpr std::int64_t kMostInteger = 999'999'999'999'999;  // of a structured field
constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

void write_integer(std::int64_t number, Pen& pen) { pen.number(std::min(number, kMostInteger)); }

std::int64_t seconds_rounded_up(Nanos span) noexcept { return (span.count() + kNanosPerSecond - 1) / kNanosPerSecond; }

// A structured-field string: printable ASCII only, with quotes and backslashes escaped. Ids need neither.
void write_string(std::string_view text, Pen& pen) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  pen.put('"');
  if (std::all_of(text.begin(), text.end(), plain)) {
    pen.text(text);
  } else {
    for (const char c : text) {
      if (c == '"' || c == '\\') pen.put('\\');
      pen.put(c >= 0x20 && c < 0x7F ? c : '?');
    }
  }
  pen.put('"');
}

// Over how long `limit` is admitted; 0: there is no such span.
std::int64_t window_seconds(const Limit& limit) noexcept {
  switch (limit.strategy()) {
    case Strategy::kConcurrency: return 0;
    case Strategy::kQuota: {
      constexpr std::int64_t kHour = 3600;
      constexpr std::int64_t kDay = 24 * kHour;
      switch (limit.period()) {
        case Period::kHour: return kHour;
        case Period::kDay: return kDay;
        case Period::kWeek: return 7 * kDay;
        case Period::kMonth: return 30 * kDay;
        case Period::kYear: return 365 * kDay;
      }
      return 0;
    }
    case Strategy::kTokenBucket:
    case Strategy::kGcra:
    case Strategy::kLeakyBucket: {
      // As long as it takes to fill.
      const Rate rate = limit.rate();
      if (rate.units <= 0) return 0;
      const double seconds = static_cast<double>(limit.limit()) / static_cast<double>(rate.units) *
                             static_cast<double>(rate.per.count()) / static_cast<double>(kNanosPerSecond);
      return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(seconds + 0.999999, 1e12)));
    }
    default: return std::max<std::int64_t>(1, seconds_rounded_up(limit.window()));
  }
}

struct Item {
  const policy::Policy* policy = nullptr;
  const core::Outcome* outcome = nullptr;
  const Limit* limit = nullptr;
  double scale = 1;
};

// The limit of a policy that has the least left; none: it is unlimited.
Item item_of(const CheckDecision& decision, const Judged& judged) noexcept {
  Item item;
  const engine::WorkingPolicy& working = decision.working(judged);
  item.policy = working.policy;
  item.scale = working.scale;
  const auto& limits = working.strands[judged.strand].limits;
  for (std::size_t i = 0; i < judged.count; ++i) {
    const core::Outcome& outcome = decision.outcomes[judged.first + i];
    if (item.outcome != nullptr && outcome.remaining >= item.outcome->remaining) continue;
    item.outcome = &outcome;
    item.limit = judged.own != nullptr ? &judged.own->base : &limits[i].base;
  }
  return item;
}

void write_retry_after(Nanos span, Pen& pen) {
  pen.put("Retry-After: ");
  write_integer(std::max<std::int64_t>(1, seconds_rounded_up(span)), pen);
  pen.put("\r\n");
}

}  // namespace

void append_retry_after(Nanos span, std::string& out) {
  Pen pen(out);
  write_retry_after(span, pen);
}

void append_limit_headers(const CheckDecision& decision, std::string& out) {
  Pen pen(out);
  std::array<Item, kMostItems> items;
  std::size_t count = 0;
  for (std::size_t i = 0; i < decision.judged.size() && count < kMostItems; ++i) {
    const Judged& judged = decision.judged[i];
    if (!judged.enforced || judged.parent) continue;
    const Item item = item_of(decision, judged);
    if (item.outcome != nullptr) items[count++] = item;
  }
  if (count > 0) {
    pen.put("RateLimit-Policy: ");
    for (std::size_t i = 0; i < count; ++i) {
      const Item& item = items[i];
      if (i > 0) pen.put(", ");
      write_string(item.policy->id, pen);
      pen.put(";q=");
      write_integer(item.outcome->limit, pen);
      if (const std::int64_t window = window_seconds(*item.limit); window > 0) {
        pen.put(";w=");
        write_integer(window, pen);
      }
      const bool slots = item.limit->strategy() == Strategy::kConcurrency;
      if (slots || item.policy->unit == "requests") continue;
      pen.put(";headgate-unit=");
      write_string(item.policy->unit, pen);
      if (item.scale != 1) pen.put(";headgate-scale=1000000");
    }
    pen.put("\r\nRateLimit: ");
    for (std::size_t i = 0; i < count; ++i) {
      const Item& item = items[i];
      if (i > 0) pen.put(", ");
      write_string(item.policy->id, pen);
      pen.put(";r=");
      write_integer(std::max<Units>(0, item.outcome->remaining), pen);
      pen.put(";t=");
      write_integer(seconds_rounded_up(item.outcome->reset_after), pen);
    }
    pen.put("\r\n");
  }
  if (decision.limit > 0) {
    constexpr double kMost = 9e14;
    pen.put("X-RateLimit-Limit: ");
    write_integer(static_cast<std::int64_t>(std::min(decision.limit, kMost)), pen);
    pen.put("\r\nX-RateLimit-Remaining: ");
    write_integer(static_cast<std::int64_t>(std::clamp(decision.remaining, 0.0, kMost)), pen);
    pen.put("\r\nX-RateLimit-Reset: ");
    write_integer(seconds_rounded_up(decision.reset_time()), pen);
    pen.put("\r\n");
  }
  if (!decision.allowed && decision.retry_after != kNever) write_retry_after(decision.retry_after, pen);
}

}  // namespace headgate::api

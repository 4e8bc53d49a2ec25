// The file, one field a line, the last line the XXH3 of all before it:
//
//   headgate emergency 1
//   active yes
//   automatic no
//   held_off no
//   since 1700000000000000000
//   by alice
//   reason the model is looping
//   sum 0123456789abcdef
#include "control/emergency.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/hash.h"
#include "base/small_file.h"
#include "base/utf8.h"
#include "control/load.h"
#include "control/ranges.h"

namespace headgate::control {
namespace {

constexpr std::size_t kMaxFile = 4096;
constexpr std::string_view kFirstLine = "headgate emergency 1\n";
constexpr std::string_view kByItself = "headgate";

Result<void> check_text(std::string_view field, std::string_view text, std::size_t most) {
  if (text.empty() || text.size() > most) {
    return Error{ErrorCode::kInvalidArgument, std::string(field) + " must be between 1 and " + std::to_string(most) +
                                                  " bytes long, got " + std::to_string(text.size())};
  }
  if (!base::is_plain_text(text)) {
    return Error{ErrorCode::kInvalidArgument,
                 std::string(field) + " must be UTF-8 without control characters, got others"};
  }
  return {};
}

std::string sum_of(std::string_view text) {
  std::array<char, 17> digits{};
  const std::uint64_t sum = base::hash128(text, 0).low;
  for (int i = 0; i < 16; ++i) digits[static_cast<std::size_t>(i)] = "0123456789abcdef"[(sum >> (60 - 4 * i)) & 15U];
  return digits.data();
}

// Takes "name value\n" off the front of the text; the text becomes empty if something else stands there.
std::string_view take(std::string_view& text, std::string_view name) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  if (end == std::string_view::npos || !line.starts_with(name) || line.substr(name.size(), 1) != " ") {
    text = {};
    return {};
  }
  text.remove_prefix(end + 1);
  return line.substr(name.size() + 1);
}

std::optional<bool> yes_or_no(std::string_view word) {
  if (word == "yes") return true;
  if (word == "no") return false;
  return std::nullopt;
}

std::optional<Emergency> parse(std::string_view text) {
  const auto active = yes_or_no(take(text, "active"));
  const auto automatic = yes_or_no(take(text, "automatic"));
  const auto held_off = yes_or_no(take(text, "held_off"));
  const std::string_view since = take(text, "since");
  Emergency state;
  std::int64_t nanos = 0;
  const auto number = std::from_chars(since.data(), since.data() + since.size(), nanos);
  state.by = take(text, "by");
  state.reason = take(text, "reason");
  const bool whole = active && automatic && held_off && number.ec == std::errc() && !since.empty() &&
                     number.ptr == since.data() + since.size() && text.starts_with("sum ");
  if (!whole || nanos < 0 || Nanos{nanos} > kMaxTime) return std::nullopt;
  state.active = *active;
  state.automatic = *automatic;
  state.held_off = *held_off;
  state.since = Nanos{nanos};
  return state;
}

}  // namespace

Result<Emergency> turn_on(const Emergency& state, const EmergencyOrder& order, Nanos now) {
  if (auto good = check_text("reason", order.reason, kMaxEmergencyReason); !good) return std::move(good).error();
  if (auto good = check_text("by", order.by, kMaxEmergencyBy); !good) return std::move(good).error();
  Emergency next;
  next.active = true;
  next.reason = order.reason;
  next.by = order.by;
  next.since = state.active ? state.since : std::clamp(now, Nanos{0}, kMaxTime);
  return next;
}

Emergency turn_off(const Emergency& state, const AdaptiveSettings& settings, std::optional<double> load) {
  const std::optional<double> figure = load_figure(load);
  Emergency next;
  const bool elsewhere = state.active && state.automatic && !state.node.empty();
  next.held_off = elsewhere ? true
                  : figure  ? *figure > settings.emergency_at - settings.emergency_margin
                            : state.held_off;
  return next;
}

Emergency follow_load(const Emergency& state, const AdaptiveSettings& settings, std::optional<double> load, Nanos now) {
  if (state.active && state.automatic && !state.node.empty()) return state;
  const std::optional<double> figure = load_figure(load);
  if (!settings.auto_emergency) return state.active && !state.automatic ? state : Emergency{};
  Emergency next = state;
  if (!figure || *figure <= settings.emergency_at - settings.emergency_margin) {
    if (state.active && state.automatic) return {};
    next.held_off = false;
  } else if (*figure > settings.emergency_at && !state.active && !state.held_off) {
    next.active = true;
    next.automatic = true;
    next.reason = "load " + format_load(*figure) + " is over " + format_number(settings.emergency_at);
    next.by = kByItself;
    next.since = std::clamp(now, Nanos{0}, kMaxTime);
  }
  return next;
}

Result<void> save_emergency(const std::string& path, const Emergency& state) {
  if (!base::is_plain_text(state.by) || !base::is_plain_text(state.reason)) {
    return Error{ErrorCode::kInvalidArgument, "by and reason must be UTF-8 without control characters, got others"};
  }
  const auto word = [](bool yes) { return yes ? "yes\n" : "no\n"; };
  std::string text(kFirstLine);
  text += std::string("active ") + word(state.active) + "automatic " + word(state.automatic) + "held_off " +
          word(state.held_off) + "since " + std::to_string(state.since.count()) + "\nby " + state.by + "\nreason " +
          state.reason + "\n";
  text += "sum " + sum_of(text) + "\n";
  return base::write_whole(path, text);
}

Result<Emergency> load_emergency(const std::string& path) {
  auto read = base::read_start(path, kMaxFile);
  if (!read) return std::move(read).error();
  if (!*read) return Emergency{};
  const std::string& bytes = **read;
  const auto corrupt = [&](const std::string& what) {
    return Error{ErrorCode::kCorrupt, path + ": not a usable emergency state: " + what};
  };
  if (!bytes.starts_with(kFirstLine)) {
    const bool torn = kFirstLine.starts_with(bytes);
    return corrupt(torn ? "it is torn" : "it was written by something else or by another version");
  }
  const std::size_t sum_at = bytes.rfind("sum ");
  if (sum_at == std::string::npos || bytes.substr(sum_at) != "sum " + sum_of(bytes.substr(0, sum_at)) + "\n") {
    return corrupt("its checksum does not match: it is torn or was altered");
  }
  const auto state = parse(std::string_view(bytes).substr(kFirstLine.size()));
  if (!state) return corrupt("its fields make no sense");
  return *state;
}

}  // namespace headgate::control

#include "cli/quota/quota_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/json_fields.h"
#include "cli/view/describe.h"
#include "cli/view/overview.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::array<const char*, 3> kTitles{"TODAY", "THIS WEEK", "THIS MONTH"};
constexpr std::array<const char*, 3> kPeriodTitles{"today", "week", "month"};
constexpr std::size_t kBar = 9;      // of a period that stands beside others
constexpr std::size_t kCounts = 11;  // "12.3k/45.6k"
constexpr std::size_t kCell = kBar + 1 + kCounts;
constexpr std::size_t kQuotaGap = 2;
constexpr int kIndent = 12;  // of what follows a name

std::string padded(const std::string& text, std::size_t columns) {
  const std::size_t taken = columns_of(text);
  return text + std::string(columns - std::min(columns, taken), ' ');
}

// 950, 12.3k, 10k.
std::string brief(std::uint64_t count) {
  std::string text = short_count(count);
  if (const std::size_t zero = text.find(".0"); zero != std::string::npos) text.erase(zero, 2);
  return text;
}

// "3/500" in at most kCounts columns, exactly where that fits.
std::string counts(const QuotaUse& use) {
  std::string exact = fmt::format("{}/{}", use.used, *use.limit);
  return exact.size() <= kCounts ? exact : fmt::format("{}/{}", brief(use.used), brief(*use.limit));
}

// A line of what is shown, whose blanks at its end are left out.
class QuotaRow {
 public:
  explicit QuotaRow(const Terminal& terminal) : terminal_(terminal) {}
  void add(const std::string& text, std::size_t columns, Ink ink = Ink::kPlain) {
    if (text.empty()) {
      blanks_ += columns;
      return;
    }
    line_ += std::string(blanks_, ' ') + terminal_.paint(text, ink);
    blanks_ = columns - std::min(columns, columns_of(text));
  }
  [[nodiscard]] std::string text() const { return line_ + "\n"; }

 private:
  const Terminal& terminal_;
  std::string line_;
  std::size_t blanks_ = 0;
};

class Page {
 public:
  Page(const QuotaStatus& status, Nanos now, const Terminal& terminal)
      : status_(status), now_(now), terminal_(terminal) {}

  std::string text() {
    entry("user", status_.user, Ink::kBold);
    entry("plan", status_.plan);
    if (!status_.rule.empty()) entry("own rule", status_.rule);
    if (!status_.timezone.empty()) entry("time zone", status_.timezone);
    mode();
    pace();
    if (!status_.warning.empty()) entry("warning", status_.warning, Ink::kYellow);
    if (status_.types.empty()) return out_;
    out_ += "\n";
    std::size_t name = 4;
    for (const QuotaStatus::Type& type : status_.types) name = std::max(name, columns_of(type.name));
    if (name + 3 * (kQuotaGap + kCell) <= static_cast<std::size_t>(terminal_.width)) {
      beside(name);
    } else {
      below();
    }
    resets();
    return out_;
  }

 private:
  void entry(std::string_view name, std::string_view text, Ink ink = Ink::kPlain) {
    const std::vector<std::string> lines = wrap(printable(text), terminal_.width, kIndent);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      out_ += padded(i == 0 ? std::string(name) : "", kIndent) + terminal_.paint(lines[i].substr(kIndent), ink) + "\n";
    }
  }

  void mode() {
    if (status_.mode == "monitor") {
      entry("mode", "monitor: commands are counted, none is refused", Ink::kYellow);
    } else if (status_.mode == "off") {
      entry("mode", "off: commands are not even counted", Ink::kDim);
    } else if (!status_.mode.empty()) {
      entry("mode", status_.mode);
    }
  }
  void pace() {
    std::string text = speed_text(status_.factor);
    if (status_.load) text += fmt::format(", load {:.2f}", *status_.load);
    entry("speed", text, status_.factor >= 1 ? Ink::kPlain : status_.factor > 0 ? Ink::kYellow : Ink::kRed);
  }

  void beside(std::size_t name) {
    QuotaRow titles(terminal_);
    titles.add("TYPE", name + kQuotaGap, Ink::kDim);
    for (const char* title : kTitles) titles.add(title, kCell + kQuotaGap, Ink::kDim);
    out_ += titles.text();
    for (const QuotaStatus::Type& type : status_.types) {
      QuotaRow row(terminal_);
      row.add(printable(type.name), name + kQuotaGap, Ink::kBold);
      for (const std::optional<QuotaUse>& use : type.uses) {
        if (!use) {
          row.add("", kCell + kQuotaGap);
        } else if (!use->limit) {
          row.add(fmt::format("{}, no limit", brief(use->used)), kCell + kQuotaGap, Ink::kDim);
        } else {
          row.add(quota_bar(*use, kBar, terminal_.unicode), kBar + 1, quota_ink(*use));
          row.add(counts(*use), kCounts + kQuotaGap);
        }
      }
      out_ += row.text();
    }
  }

  void below() {
    constexpr std::size_t kName = 8;
    constexpr std::size_t kCount = 20;
    const std::size_t bar = std::min<std::size_t>(static_cast<std::size_t>(terminal_.width) - kName - kCount, 40);
    for (const QuotaStatus::Type& type : status_.types) {
      out_ += terminal_.paint(printable(type.name).substr(0, static_cast<std::size_t>(terminal_.width)), Ink::kBold);
      out_ += "\n";
      for (std::size_t i = 0; i < type.uses.size(); ++i) {
        const std::optional<QuotaUse>& use = type.uses[i];
        if (!use) continue;
        QuotaRow row(terminal_);
        row.add(std::string("  ") + kPeriodTitles[i], kName + 1, Ink::kDim);
        if (use->limit) {
          row.add(quota_bar(*use, bar, terminal_.unicode), bar + 1, quota_ink(*use));
          row.add(counts(*use), kCounts);
        } else {
          row.add(fmt::format("{}, no limit", brief(use->used)), kCount, Ink::kDim);
        }
        out_ += row.text();
      }
    }
  }

  // All types have the same calendar, so it is printed once.
  void resets() {
    std::vector<std::string> told;
    for (std::size_t i = 0; i < kPeriodTitles.size(); ++i) {
      if (status_.resets_at[i] <= Nanos{0}) continue;
      const Nanos left = status_.resets_at[i] - now_;
      told.push_back(
          fmt::format("{} {}", kPeriodTitles[i], left > Nanos{0} ? "in " + span_text(left) : std::string("by now")));
    }
    if (told.empty()) return;
    const std::string where = status_.timezone.empty() ? "" : fmt::format(", at midnight in {}", status_.timezone);
    out_ += "\n";
    entry("resets", joined(told, ", ") + where, Ink::kDim);
  }

  const QuotaStatus& status_;
  Nanos now_;
  const Terminal& terminal_;
  std::string out_;
};

}  // namespace

QuotaStatus read_quota_status(const ordered_json& json) {
  const JsonFields all(json);
  QuotaStatus status;
  status.user = all.text_or_number("user");
  status.plan = all.text("plan");
  status.timezone = all.text("timezone");
  status.mode = all.text("mode");
  status.factor = all.number("throttle_factor", 1);
  if (all.has("system_load")) status.load = all.number("system_load");
  status.warning = all.text("warning");
  if (json.is_object() && json.contains("rule")) {
    std::vector<std::string> fields;
    for (const auto& [name, value] : quota_fields(json["rule"])) fields.push_back(fmt::format("{} {}", name, value));
    status.rule = joined(fields, ", ");
  }
  for (std::size_t i = 0; i < kQuotaPeriods.size(); ++i) {
    if (!json.is_object() || !json.contains(kQuotaPeriods[i])) continue;
    for (const auto& [name, value] : json[kQuotaPeriods[i]].items()) {
      auto type = std::find_if(status.types.begin(), status.types.end(),
                               [&, &wanted = name](const QuotaStatus::Type& known) { return known.name == wanted; });
      if (type == status.types.end()) {
        status.types.push_back({name, {}});
        type = status.types.end() - 1;
      }
      const JsonFields about(value);
      QuotaUse use;
      use.used = about.count("used");
      if (about.has("limit")) use.limit = about.count("limit");
      type->uses[i] = use;
      status.resets_at[i] = std::max(status.resets_at[i], milliseconds(about.number("resets_at")));
    }
  }
  return status;
}

QuotaQueue read_quota_queue(const ordered_json& json) {
  const JsonFields all(json);
  QuotaQueue queue;
  queue.concurrent = all.count("concurrent");
  queue.factor = all.number("factor", 1);
  queue.running = all.count("running");
  queue.waiting = all.count("waiting");
  for (const ordered_json& each : all.list("line")) {
    const JsonFields about(each);
    QuotaQueue::Waiting waiting;
    waiting.user = about.text("user");
    waiting.type = about.text("type");
    waiting.session = about.text("session");
    waiting.priority = static_cast<std::int64_t>(std::clamp(about.number("priority"), -1e9, 1e9));
    waiting.position = about.count("position");
    waiting.waited = milliseconds(about.number("waited_ms"));
    if (about.has("estimated_start_ms")) waiting.estimate = milliseconds(about.number("estimated_start_ms"));
    queue.line.push_back(std::move(waiting));
  }
  for (const ordered_json& each : all.list("runs")) {
    const JsonFields about(each);
    queue.runs.push_back(
        {about.text("user"), about.text("type"), about.text("session"), milliseconds(about.number("running_ms"))});
  }
  return queue;
}

std::string quota_page(const QuotaStatus& status, Nanos now, const Terminal& terminal) {
  return Page(status, now, terminal).text();
}

std::string quota_bar(const QuotaUse& use, std::size_t columns, bool unicode) {
  std::size_t full = columns;
  if (use.limit && use.used < *use.limit && columns > 0) {
    const double share = static_cast<double>(use.used) / static_cast<double>(*use.limit);
    const auto near = static_cast<std::size_t>(std::lround(share * static_cast<double>(columns)));
    full = std::min(std::max<std::size_t>(near, use.used > 0 ? 1 : 0), columns - 1);
  }
  std::string bar;
  for (std::size_t i = 0; i < columns; ++i) {
    if (unicode) {
      bar += i < full ? "█" : "░";
    } else {
      bar += i < full ? '#' : '.';
    }
  }
  return bar;
}

Ink quota_ink(const QuotaUse& use) noexcept {
  if (!use.limit) return Ink::kDim;
  const auto used = static_cast<double>(use.used);
  const auto limit = static_cast<double>(*use.limit);
  constexpr double kHalf = 0.5;
  constexpr double kMuch = 0.8;
  if (used > limit * kMuch || limit == 0) return Ink::kRed;
  return used < limit * kHalf ? Ink::kGreen : Ink::kYellow;
}

std::string speed_text(double factor) {
  if (factor >= 1) return "full";
  if (!(factor > 0)) return "none: no command starts until the load is lower";
  return fmt::format("{} % of full", number_text(std::round(factor * 100)));
}

std::string queue_text(const QuotaQueue& queue) {
  std::string text = count_text(queue.running) + " running";
  if (queue.concurrent > 0) text += " of " + count_text(queue.concurrent);
  text += fmt::format(", {} waiting", count_text(queue.waiting));
  if (!(queue.factor > 0)) return text + ", none may start";
  if (queue.factor < 1) text += fmt::format(", at {} % of full speed", number_text(std::round(queue.factor * 100)));
  return text;
}

std::string amount_text(const ordered_json& limit) {
  if (limit.is_null()) return "unlimited";
  if (limit.is_number_unsigned()) return count_text(limit.get<std::uint64_t>());
  if (limit.is_number()) return number_text(limit.get<double>());
  return limit.is_string() ? limit.get<std::string>() : limit.dump();
}

QuotaFields quota_fields(const ordered_json& rule) {
  QuotaFields fields;
  if (!rule.is_object()) return fields;
  for (const auto& [name, value] : rule.items()) {
    if (name == "types" || value.is_null()) continue;
    if (value.is_string() && value.get_ref<const std::string&>().empty()) continue;
    fields.emplace_back(name == "timezone" ? "time zone" : name, amount_text(value));
  }
  if (!rule.contains("types") || !rule["types"].is_object()) return fields;
  for (const auto& [type, limits] : rule["types"].items()) {
    if (!limits.is_object()) continue;
    for (const auto& [name, value] : limits.items())
      fields.emplace_back(fmt::format("{} {}", type, name), amount_text(value));
  }
  return fields;
}

const std::string* find_field(const QuotaFields& fields, std::string_view name) {
  for (const auto& [known, value] : fields) {
    if (known == name) return &value;
  }
  return nullptr;
}

}  // namespace headgate::cli

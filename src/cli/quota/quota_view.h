// Quotas as a server tells them, and as people read them: functions of what was answered, the time and the terminal.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/view/terminal.h"
#include "headgate/clock.h"

namespace headgate::cli {

inline constexpr std::array<const char*, 3> kQuotaPeriods{"daily", "weekly", "monthly"};

// One type of command in one period.
struct QuotaUse {
  std::uint64_t used = 0;
  std::optional<std::uint64_t> limit;  // nullopt: unlimited
};

struct QuotaStatus {
  struct Type {
    std::string name;
    std::array<std::optional<QuotaUse>, 3> uses;  // by kQuotaPeriods
  };
  std::string user;
  std::string plan;
  std::string timezone;
  std::string mode;
  std::string rule;  // what differs for this user, in words; empty: nothing
  std::vector<Type> types;
  std::array<Nanos, 3> resets_at{};  // zero: not told
  double factor = 1;
  std::optional<double> load;
  std::string warning;
};

// Who runs commands, and who waits to.
struct QuotaQueue {
  struct Waiting {
    std::string user;
    std::string type;
    std::string session;
    std::int64_t priority = 0;
    std::uint64_t position = 0;
    Nanos waited{0};
    std::optional<Nanos> estimate;  // nullopt: unknown
  };
  struct Running {
    std::string user;
    std::string type;
    std::string session;
    Nanos since{0};
  };
  std::uint64_t concurrent = 0;  // 0: no bound
  double factor = 1;
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::vector<Waiting> line;
  std::vector<Running> runs;
};

// What is missing reads as nothing.
[[nodiscard]] QuotaStatus read_quota_status(const nlohmann::ordered_json& json);
[[nodiscard]] QuotaQueue read_quota_queue(const nlohmann::ordered_json& json);

// One screen: bars by type and period, when they are empty again, the pace of commands. Three periods beside each other
// where that fits, below each other where not.
[[nodiscard]] std::string quota_page(const QuotaStatus& status, Nanos now, const Terminal& terminal);

// Some of a bar as soon as anything is used, all of it only when nothing is left.
[[nodiscard]] std::string quota_bar(const QuotaUse& use, std::size_t columns, bool unicode);
// Green below half, yellow up to four fifths, red above.
[[nodiscard]] Ink quota_ink(const QuotaUse& use) noexcept;
// "full", "60 % of full", "none".
[[nodiscard]] std::string speed_text(double factor);
// "3 running of 4, 12 waiting, at 60 % of full speed".
[[nodiscard]] std::string queue_text(const QuotaQueue& queue);
// 500, "unlimited": a limit as a plan has it.
[[nodiscard]] std::string amount_text(const nlohmann::ordered_json& limit);

// The fields of a rule or plan by name, as texts: ("plan", "premium"), ("shell daily", "50").
using QuotaFields = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] QuotaFields quota_fields(const nlohmann::ordered_json& rule);
[[nodiscard]] const std::string* find_field(const QuotaFields& fields, std::string_view name);

}  // namespace headgate::cli

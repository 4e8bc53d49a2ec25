#include "quota/ledger_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "headgate/check.h"

namespace headgate::quota {
namespace {

constexpr std::int64_t kMostMs = 315'360'000'000;  // ten years
constexpr double kMostPercent = 1e6;
constexpr double kMostMegabytes = 1e12;

double within(double value, double most) noexcept { return std::isnan(value) ? 0 : std::clamp(value, 0.0, most); }

Result<void> fit_name(const char* what, std::string& name, std::size_t least) {
  base::repair(name);
  if (name.size() >= least && name.size() <= kMaxNameBytes) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be {} to {} bytes, got {}", what, least, kMaxNameBytes, name.size())};
}

Result<void> fit_key(UsageKey& key) {
  if (auto fits = fit_name("user", key.user, 1); !fits) return fits;
  if (auto fits = fit_name("type", key.type, 1); !fits) return fits;
  if (auto fits = fit_name("session", key.session, 0); !fits) return fits;
  key.day = from_ms(to_ms(std::clamp(key.day, Nanos{0}, kMaxTime)));
  return {};
}

void fit_usage(Usage& usage) {
  for (std::int64_t* figure : {&usage.commands, &usage.refused, &usage.would_refuse, &usage.throttled, &usage.runs,
                               &usage.failures, &usage.duration_ms, &usage.cpu_ms}) {
    *figure = std::clamp(*figure, -kMostUsage, kMostUsage);
  }
  usage.memory_mb = within(usage.memory_mb, kMostMegabytes);
}

Result<void> fit_hash(std::string& hash) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  for (char& c : hash) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (hash.empty() || (hash.size() == 64 && std::all_of(hash.begin(), hash.end(), digit))) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("command_hash must be 64 hexadecimal digits, got {} bytes", hash.size())};
}

Result<void> fit_execution(Execution& execution) {
  if (auto fits = fit_name("user", execution.user, 1); !fits) return fits;
  if (auto fits = fit_name("type", execution.type, 1); !fits) return fits;
  if (auto fits = fit_name("session", execution.session, 0); !fits) return fits;
  if (auto fits = fit_hash(execution.command_hash); !fits) return fits;
  constexpr std::size_t kMark = 3;  // shortened() adds "..."
  base::repair(execution.error);
  if (execution.error.size() > kMaxErrorBytes)
    execution.error = base::shortened(execution.error, kMaxErrorBytes - kMark);
  execution.duration_ms = std::clamp<std::int64_t>(execution.duration_ms, 0, kMostMs);
  execution.cpu_percent = within(execution.cpu_percent, kMostPercent);
  execution.memory_mb = within(execution.memory_mb, kMostMegabytes);
  execution.executed_at = from_ms(to_ms(std::clamp(execution.executed_at, Nanos{0}, kMaxTime)));
  return {};
}

}  // namespace

Result<void> make_fit(Ledger::Entry& entry) {
  if (auto* charge = std::get_if<Ledger::Charge>(&entry)) {
    fit_usage(charge->usage);
    return fit_key(charge->key);
  }
  auto& run = std::get<Ledger::Run>(entry);
  if (auto fits = fit_key(run.key); !fits) return fits;
  return fit_execution(run.execution);
}

Usage usage_of(const Execution& execution) noexcept {
  Usage usage;
  usage.runs = 1;
  usage.failures = execution.exit_code == 0 ? 0 : 1;
  usage.duration_ms = execution.duration_ms;
  usage.cpu_ms = std::llround(static_cast<double>(execution.duration_ms) * execution.cpu_percent / 100);
  usage.memory_mb = execution.memory_mb;
  return usage;
}

}  // namespace headgate::quota

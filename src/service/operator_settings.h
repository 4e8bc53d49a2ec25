// Changes that operators make while the server runs: overrides of agents, the exempt list, the emergency throttle,
// reported load, quota rules and plans.
//
// Each call validates the change, writes it to the database with an entry of the audit log and puts it in force.
// Change::kept hears when it is on disk; a change that is refused is never written. Safe for concurrent use: changes
// are made one at a time. Nothing waits for the disk.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/emergency.h"
#include "service/caller.h"
#include "service/service.h"
#include "service/tier_json.h"

namespace headgate::service {

class OperatorSettings {
 public:
  static constexpr std::size_t kMostExempt = 100'000;  // agents

  struct Change {
    std::string who;  // for the audit log
    state::Database::Kept kept;
  };
  // Why a change was not made; nullopt: it is in force.
  using Refused = std::optional<Refusal>;

  explicit OperatorSettings(Service& service) : service_(service) {}

  [[nodiscard]] Refused set_override(const std::string& agent, const TierOverrides& tiers, Change change);
  [[nodiscard]] Refused clear_override(const std::string& agent, Change change);

  // REQUIRES: at most kMostExempt names.
  void replace_exempt(const std::vector<std::string>& agents, Change change);
  [[nodiscard]] Refused add_exempt(const std::string& agent, Change change);
  [[nodiscard]] Refused remove_exempt(const std::string& agent, Change change);

  [[nodiscard]] Refused turn_emergency_on(const control::EmergencyOrder& order, Change change);
  // False: it was off, and nothing was written.
  [[nodiscard]] bool turn_emergency_off(Change change);

  // nullopt: takes the last report back. Only a report that changes something gets an entry of the audit log.
  engine::Controls::Load report_load(std::optional<double> load, const std::string& who);

  // Forgets what limits that callers name have counted; returns how many cells that were. They are cleared first, since
  // an operator who clears cells is out of memory, and perhaps of disk space: an Error is of the audit log only.
  [[nodiscard]] Result<std::size_t> clear_caller_cells(const std::string& who);

  // `text` is JSON: the fields of the rule that change. REQUIRES: the service keeps quotas.
  [[nodiscard]] Refused set_quota_rule(const std::string& user, std::string_view text, Change change);
  [[nodiscard]] Refused clear_quota_rule(const std::string& user, Change change);
  [[nodiscard]] Refused set_quota_plan(const std::string& plan, std::string_view text, Change change);
  [[nodiscard]] Refused clear_quota_plan(const std::string& plan, Change change);

 private:
  [[nodiscard]] engine::Controls& controls() const noexcept { return service_.engine->controls(); }
  [[nodiscard]] Nanos wall() const { return service_.clock->wall(service_.clock->now()); }
  [[nodiscard]] state::AuditEntry entry_of(const Change& change, std::string action, std::string target) const;
  // Of the setting whose key is the entry's target. No value: it is deleted.
  void keep(std::string section, std::optional<std::string> value, const state::AuditEntry& entry, Change change);
  void keep_emergency(const control::Emergency& before, const control::Emergency& next, Change change);
  // The exempt agents that were set here, not by policies.
  [[nodiscard]] std::vector<std::string> listed() const;

  Service& service_;
  std::mutex mutex_;  // from reading what is in force to changing it
};

// {"load", "reported", "sensors", "level", "factor"}.
[[nodiscard]] Json load_json(const engine::Controls::Load& load);

}  // namespace headgate::service

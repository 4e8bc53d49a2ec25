#include "service/alerts.h"

#include <algorithm>
#include <array>

namespace headgate::service {
namespace {

bool worth_an_alert(std::string_view kind) noexcept {
  constexpr std::array<std::string_view, 7> kFamilies{"quota_", "command_",  "ledger_", "store_",
                                                      "clock_", "database_", "disk_"};
  for (const std::string_view family : kFamilies) {
    if (kind.starts_with(family)) return true;
  }
  constexpr std::array<std::string_view, 7> kKinds{"escalation",       "sustained_abuse", "emergency", "overrun",
                                                   "control_conflict", "memory",          "cells_full"};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

}  // namespace

void Alerts::on_notice(const observe::Notice& notice) {
  if (!worth_an_alert(notice.kind)) return;
  const std::lock_guard guard(mutex_);
  if (const auto known = of_condition(notice); known != alerts_.end()) {
    Alert alert = std::move(*known);
    alerts_.erase(known);
    const std::uint64_t id = alert.notice.id;
    alert.notice = notice;
    alert.notice.id = id;
    alert.count = notice.count;
    alerts_.push_front(std::move(alert));
    return;
  }
  Alert& alert = alerts_.emplace_front();
  alert.notice = notice;
  alert.count = notice.count;
  alert.first_at = notice.time;
  const auto same_kind = [&](const Alert& other) { return other.notice.kind == notice.kind; };
  if (static_cast<std::size_t>(std::count_if(alerts_.begin(), alerts_.end(), same_kind)) <= kMostOfKind) return;
  const auto oldest = std::find_if(alerts_.rbegin(), alerts_.rend(), same_kind);
  alerts_.erase(std::prev(oldest.base()));
}

std::deque<Alert>::iterator Alerts::of_condition(const observe::Notice& notice) {
  if (!observe::counts_repeats(notice.kind)) return alerts_.end();
  const std::string condition = observe::condition_of(notice);
  return std::find_if(alerts_.begin(), alerts_.end(), [&](const Alert& alert) {
    return alert.notice.kind == notice.kind && observe::condition_of(alert.notice) == condition &&
           notice.time - alert.notice.time < observe::kRepeatCoolDown;
  });
}

std::vector<Alert> Alerts::latest() const {
  const std::lock_guard guard(mutex_);
  return {alerts_.begin(), alerts_.end()};
}

std::optional<Alert> Alerts::find(std::uint64_t id) const {
  const std::lock_guard guard(mutex_);
  for (const Alert& alert : alerts_) {
    if (alert.notice.id == id) return alert;
  }
  return std::nullopt;
}

std::optional<Alert> Alerts::acknowledge(std::uint64_t id, const std::string& by, Nanos wall) {
  const std::lock_guard guard(mutex_);
  for (Alert& alert : alerts_) {
    if (alert.notice.id != id) continue;
    if (alert.acknowledged_by.empty()) {
      alert.acknowledged_by = by;
      alert.acknowledged_at = wall;
    }
    return alert;
  }
  return std::nullopt;
}

}  // namespace headgate::service

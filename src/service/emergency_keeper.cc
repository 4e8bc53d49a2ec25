#include "service/emergency_keeper.h"

#include <array>
#include <nlohmann/json.hpp>

#include "observe/log.h"
#include "service/json.h"

namespace headgate::service {
namespace {

// The two clocks' readings of one order, before it is written and when it is carried out, differ by little.
constexpr Nanos kSameOrder = std::chrono::seconds{1};

bool same(const control::Emergency& a, const control::Emergency& b) {
  control::Emergency at_once = a;
  if (a.since - b.since < kSameOrder && b.since - a.since < kSameOrder) at_once.since = b.since;
  if (!a.active && !b.active) return a.held_off == b.held_off;
  return at_once == b;
}

}  // namespace

std::string emergency_setting(const control::Emergency& state, const std::string& here) {
  return text_of(Json{{"active", state.active},
                      {"automatic", state.automatic},
                      {"held_off", state.held_off},
                      {"reason", state.reason},
                      {"by", state.by},
                      {"node", state.automatic && state.node.empty() ? here : state.node},
                      {"since_ns", state.since.count()}});
}

std::optional<control::Emergency> emergency_of_setting(const std::string& text, const std::string& here) {
  const Json json = Json::parse(text, nullptr, false);
  try {
    control::Emergency state;
    state.active = json.at("active").get<bool>();
    state.automatic = json.at("automatic").get<bool>();
    state.held_off = json.at("held_off").get<bool>();
    state.reason = json.at("reason").get<std::string>();
    state.by = json.at("by").get<std::string>();
    if (const std::string node = json.value("node", ""); node != here) state.node = node;
    state.since = Nanos{json.at("since_ns").get<std::int64_t>()};
    return state;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void EmergencyKeeper::on_notice(const observe::Notice& notice) {
  if (notice.kind != "emergency") return;
  const std::lock_guard guard(mutex_);
  if (service_ == nullptr) return;
  const control::Emergency now = service_->engine->controls().emergency();
  std::string before;
  for (const state::Setting& setting : service_->database->settings("emergency")) {
    if (setting.value) before = *setting.value;
  }
  const std::optional<control::Emergency> kept = emergency_of_setting(before, service_->node);
  if (same(kept.value_or(control::Emergency{}), now)) return;
  state::AuditEntry entry;
  entry.time = notice.time;
  entry.who = notice.agent.empty() ? "load" : notice.agent;
  entry.action = now.active ? "emergency.on" : "emergency.off";
  entry.before = before;
  entry.after = emergency_setting(now, service_->node);
  const std::array settings{state::Setting{"emergency", "state", entry.after}};
  service_->database->change(settings, entry, [](const Result<void>& saved) {
    if (saved) return;
    observe::log(observe::LogLevel::kError, "emergency throttle not kept yet; it is in force, and tried again",
                 {{"problem", std::string_view(saved.error().message)}});
  });
}

void EmergencyKeeper::detach() {
  const std::lock_guard guard(mutex_);
  service_ = nullptr;
}

}  // namespace headgate::service

// The Controls: what operators and the load do to the engine. They publish the State that checks are judged in.
//
// Policies, overrides, exemptions, adaptive limits and the emergency throttle. Safe for concurrent use. Each change is
// seen whole or not at all, from the next check on, and takes effect before its call returns. pin() takes no lock.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/published.h"
#include "control/emergency.h"
#include "control/load.h"
#include "engine/aftermath.h"
#include "engine/ruleset.h"
#include "engine/state.h"
#include "engine/waiting_room.h"
#include "store/memory/memory_store.h"

namespace headgate::engine {

// What an operator has set for one agent: any subset of tiers.
struct Override {
  std::string agent;
  std::array<std::optional<policy::TierLimit>, policy::kTierCount> tiers;
};

class Controls {
 public:
  static constexpr std::size_t kMostLastingLimits = 100'000;

  struct Parts {
    Clock& clock;
    store::MemoryStore& store;
    Aftermath& aftermath;
    WaitingRoom& room;  // is kicked when limits change
  };
  struct Settings {
    bool remote = false;  // cells are in a remote store
    Nanos report_ttl{0};  // a reported load is forgotten after so long; 0: never
  };
  // Starts with the built-in tier limits.
  Controls(const Parts& parts, const Settings& settings);

  [[nodiscard]] base::Published<State>::Pin pin() const noexcept { return state_->pin(); }
  // Frees states that no decision holds any more.
  void reclaim() { state_->reclaim(); }

  // Replaces all policies. Cells of limits that keep their identity live on (see LimitBook).
  // Fails only when decisions on too many earlier policies are still held on to.
  Result<void> load(policy::Document document);
  [[nodiscard]] std::shared_ptr<const Ruleset> rules() const;
  // Keys are hashed under another seed from now on: the store's cells come from a file.
  void rehash();
  // A limit that is no policy's and lives as long as this; nullptr: there are too many.
  [[nodiscard]] const WorkingLimit* lasting_limit(const std::string& identity, const Limit& limit);
  // With a remote store: what part of each limit this node admits alone while that is away (0 < share <= 1).
  void set_local_share(double share);

  // An empty override reverts.
  Result<void> set_override(const Override& override);
  bool clear_override(std::string_view agent);
  [[nodiscard]] std::vector<Override> overrides() const;
  void set_exempt(const std::vector<std::string>& agents);  // replaces the list
  void add_exempt(const std::string& agent);
  bool remove_exempt(const std::string& agent);
  [[nodiscard]] std::vector<std::string> exempt() const;

  // `age`: how long ago it was reported, where it was reported to another node. An expired report is ignored.
  void report_load(double load, Nanos age = Nanos{0});
  void clear_load_report();
  void observe_load(const control::LoadReading& reading);  // from sensors, every so often
  // Lets the limits follow the load that is known, at most once a second.
  void follow_load(Nanos now);
  struct Load {
    std::optional<double> load;      // the worst of what is known
    std::optional<double> reported;  // from outside
    std::optional<double> followed;  // by limits and the automatic emergency: without the sensors, unless they count
    bool sensors = false;            // whether they do
    control::LoadLevel level = control::LoadLevel::kNormal;
    double factor = 1;
  };
  [[nodiscard]] Load load_state() const;
  // The pace at which commands are to run: 1 full speed, 0 not at all.
  [[nodiscard]] double throttle_factor() const { return state_->pin()->throttle_factor; }

  Result<void> emergency_on(const control::EmergencyOrder& order);
  void emergency_off(const std::string& by);
  void restore_emergency(const control::Emergency& state);  // as it was before a restart
  // The node whose load has turned the emergency on is gone: it ends unless the load here is reason enough.
  void emergency_node_lost(std::string_view node);
  [[nodiscard]] control::Emergency emergency() const;

 private:
  // All below under mutex_.
  [[nodiscard]] bool publish_locked();
  void step_load_locked(const control::LoadReading& reading, Nanos now);
  void step_controls_locked(Nanos now);
  void change_factors_locked(Nanos now, const std::string& why);
  [[nodiscard]] control::LoadSettings load_settings_locked() const;
  void scale_all_locked();
  void rebuild_overrides_locked();
  void rebuild_exempt_locked();

  Clock& clock_;
  store::MemoryStore& store_;
  Aftermath& aftermath_;
  WaitingRoom& room_;
  const Nanos report_ttl_;

  mutable std::mutex mutex_;  // guards all below, but for pins of state_
  LimitBook book_;
  std::uint64_t states_ = 0;  // published so far
  std::shared_ptr<const Ruleset> rules_;
  std::vector<Override> override_list_;
  std::shared_ptr<const OverrideTable> overrides_;
  std::set<std::string, std::less<>> exempt_list_;
  std::vector<std::string> document_exempt_;
  std::shared_ptr<const ExemptTable> exempt_;
  control::LoadState load_;
  control::AdaptiveState by_report_;   // follows what is reported
  control::AdaptiveState by_sensors_;  // follows the sensors as well
  control::Emergency emergency_;
  // After a restart an automatic emergency waits so long for the load to be known again.
  Nanos load_awaited_until_{0};
  Factors factors_;
  Nanos controls_at_{0};  // when they were last stepped
  std::unordered_map<std::string, std::unique_ptr<WorkingLimit>> lasting_limits_;

  std::unique_ptr<base::Published<State>> state_;
};

}  // namespace headgate::engine

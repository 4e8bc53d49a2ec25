// What operators set on one node reaches all others through Redis: overrides, the exempt list, the emergency throttle,
// policies put by API, and reported load.
//
// Each setting is a field of one hash, with the version it was written under; versions grow over all nodes. A node
// looks several times a second at a revision that moves with every write, and reads on when it is another, so a node
// that was cut off catches up in the same way. A node that finds a field missing in Redis writes it again, under the
// version that it had: so the newest that any node knows wins, whichever node comes first. A write names the version of
// the field that its node had seen: if there is a newer one the write is refused, the newer value comes into force here
// too, and both are reported (a notice and the audit log). So the first to reach Redis wins, and no change is lost
// silently.
//
// What Redis and this node last agreed on is noted in the database beside the settings. So a node that is started anew
// knows what was changed on it that Redis has not heard of, and what was not.
//
// One thread of its own; nothing here is on the path of a check.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "service/policies.h"
#include "service/service.h"
#include "store/redis/command.h"

namespace headgate::cluster {

struct SpreadOptions {
  std::string prefix = "headgate:";
  std::string node;        // unlike any other's
  std::uint64_t seed = 0;  // of all hashes: the same on every node
  Nanos every{std::chrono::milliseconds{200}};
  // A node that has said nothing for so long is not counted any more.
  Nanos gone_after{std::chrono::seconds{5}};
};

class Spread {
 public:
  // All of these outlive it. Replaces the database's listener.
  Spread(store::redis::Caller& redis, service::Service& service, service::Policies& policies, SpreadOptions options);
  ~Spread();
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  // Fetches what others have set, hands on what was set only here, and keeps up from then on.
  void start();
  void load_reported(std::optional<double> load);
  // That have been heard of lately, this one included; at least 1.
  [[nodiscard]] std::size_t nodes() const noexcept { return nodes_.load(std::memory_order_relaxed); }
  // Changes made here that Redis has not taken yet.
  [[nodiscard]] std::size_t unsent() const;

 private:
  using Value = std::optional<std::string>;  // nullopt: it was removed
  struct Field {
    std::int64_t version = 0;
    std::string node;
    Value value;
  };
  [[nodiscard]] static std::optional<Field> field_of(std::string_view text);
  [[nodiscard]] static std::string line_of(const Field& field);

  void run();
  void changed(std::span<const state::Setting> settings);
  void recall();
  void note(std::span<const std::string> names);
  // One look at Redis; false: it did not answer.
  bool step();
  bool send();
  bool beat(std::int64_t& revision);
  bool fetch();
  // An automatic emergency of another node ends here, too, when that node is not heard of any more.
  // `answered`: whether Redis does.
  void watch_cause(bool answered);
  void hand_on_again(const std::map<std::string, Field>& fields);
  // False: it could not be put in force here. Then it is not noted, or what stands here would look like a change.
  bool apply(const std::string& name, const Field& field);
  void conflict(const std::string& name, const Value& lost, const Field& kept);
  [[nodiscard]] Nanos wall() const { return service_.clock->wall(service_.clock->now()); }

  store::redis::Caller& redis_;
  service::Service& service_;
  service::Policies& policies_;
  const SpreadOptions options_;
  const std::string fields_key_;
  const std::string version_key_;
  const std::string nodes_key_;
  const std::string seed_key_;
  const std::string agreed_section_;  // of the database

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Value> unsent_;        // guarded by mutex_, as all to the blank line
  std::map<std::string, Value> last_;          // what is in force here, as far as it went through Redis
  std::map<std::string, std::int64_t> again_;  // of the unsent those that Redis has lost, and their versions
  bool ending_ = false;

  std::map<std::string, std::int64_t> seen_;  // versions of fields; the thread's own, as all below
  std::int64_t revision_ = -1;                // of what was fetched; -1: nothing was yet
  bool estranged_ = false;                    // others have another seed
  // The node whose load has turned the emergency on, and when it was last known to be there.
  struct Cause {
    std::string node;
    Nanos heard_at{0};
  };
  Cause cause_;
  bool answered_ = false;  // by Redis, in the last turn
  std::atomic<std::size_t> nodes_{1};
  std::thread thread_;
};

}  // namespace headgate::cluster

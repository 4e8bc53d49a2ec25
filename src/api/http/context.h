// What the handlers of one HTTP server share.
//
// Internal to src/api.
#pragma once

#include <memory>

#include "api/http/http_api.h"
#include "base/background.h"
#include "service/alerts.h"
#include "service/emergency_keeper.h"
#include "service/operator_settings.h"
#include "service/waiters.h"

namespace headgate::api {

class EventFeed;
class SimulationRunner;

struct Context {
  service::Service& service;
  service::Policies& policies;
  HttpApiOptions options;
  std::shared_ptr<EventFeed> feed;
  std::shared_ptr<service::Alerts> alerts;
  std::shared_ptr<service::EmergencyKeeper> keeper;
  std::shared_ptr<service::Waiters> waiters;
  std::shared_ptr<SimulationRunner> simulations;
  // Each has its own threads and bounds, so that none of them waits for another. The emergency throttle, tokens and
  // overrides use none: they take effect on the io thread.
  std::shared_ptr<base::Background> background;  // reads the disk, or a remote store
  std::shared_ptr<base::Background> of_agents;   // the same, for callers of role agent
  std::shared_ptr<base::Background> changes;     // puts policies in force
  std::shared_ptr<base::Background> trials;      // validates, explains and simulates
  std::shared_ptr<base::Background> batches;     // judges large batches
  service::OperatorSettings settings{service};
};

}  // namespace headgate::api

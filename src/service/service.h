// What every handler works with, whichever protocol brought the request.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "observe/notices.h"
#include "observe/traffic.h"
#include "service/access.h"
#include "state/database.h"

namespace headgate::service {

class Quotas;
class Waiters;

// All of it outlives the handlers, and is safe for concurrent use.
struct Service {
  engine::Engine* engine = nullptr;
  state::Database* database = nullptr;
  Access* access = nullptr;
  observe::Traffic* traffic = nullptr;
  observe::Notices* notices = nullptr;
  Clock* clock = nullptr;
  std::string node{};  // what other nodes call this one; empty: there are no others
  // Something waits in the engine, or may go on: have it polled now.
  std::function<void()> wake;
  // A load was reported here, or taken back: other nodes are to hear of it. None: there are no others.
  std::function<void(std::optional<double>)> load_reported{};
  Quotas* quotas = nullptr;               // none: no quotas are kept
  std::shared_ptr<Waiters> waiters = {};  // the HTTP API makes them, and sweeps them
};

// The one way in for a check: asks the engine, counts, and measures now and then. If the check must wait for room, or a
// remote store must be asked, `later` is called to make what will be told, once, from another thread; then the number
// to cancel it by is returned and `decision` means nothing. 0: it was answered at once. REQUIRES: `decision` is new.
std::uint64_t ask(const Service& service, observe::Protocol protocol, const engine::Request& request,
                  engine::CheckDecision& decision, engine::Engine::MakeDone later);
// All of these, or none (see Engine::check_all).
void ask_all(const Service& service, observe::Protocol protocol, Nanos now, std::span<const Check> checks,
             std::string_view owner, engine::Engine::AllAnswered answered);

}  // namespace headgate::service

// Checks that wait for room on behalf of HTTP requests, so that those whose askers have gone are not served.
//
// Safe for concurrent use. As many as the engine lets wait.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "net/http.h"

namespace headgate::api {

struct Ticket {
  std::shared_ptr<net::LaterReply> reply;
  std::atomic<bool> answered{false};
};

class Waiters {
 public:
  void add(std::uint64_t waiting, std::shared_ptr<Ticket> ticket) {
    const std::lock_guard guard(mutex_);
    tickets_.emplace_back(waiting, std::move(ticket));
  }

  // Ends the waits of those who are gone, and forgets those who were answered.
  void sweep(engine::Engine& engine) {
    std::vector<std::uint64_t> gone;
    {
      const std::lock_guard guard(mutex_);
      std::erase_if(tickets_, [&](const auto& each) {
        const auto& [waiting, ticket] = each;
        if (ticket->answered.load()) return true;
        if (!ticket->reply->abandoned()) return false;
        gone.push_back(waiting);
        return true;
      });
    }
    for (const std::uint64_t waiting : gone) (void)engine.cancel(waiting);
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Ticket>>> tickets_;
};

}  // namespace headgate::api

// Checks that wait for room on behalf of requests, so that those whose askers have gone are not served.
//
// Safe for concurrent use. As many as the engine lets wait, or a remote store has been asked about.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace headgate::service {

struct Ticket {
  std::function<bool()> abandoned;  // whether the asker has gone
  std::atomic<bool> answered{false};
};

class Waiters {
 public:
  void add(std::uint64_t waiting, std::shared_ptr<Ticket> ticket) {
    const std::lock_guard guard(mutex_);
    tickets_.emplace_back(waiting, std::move(ticket));
  }

  // The asker has gone while a remote store was being asked: the check may come to wait in line only after that.
  // `answer` lives until it is answered.
  void add_gone(std::uint64_t waiting, std::weak_ptr<const void> answer) {
    const std::lock_guard guard(mutex_);
    gone_.emplace_back(waiting, std::move(answer));
  }

  // Ends the waits of those who are gone, and forgets those who were answered.
  void sweep(engine::Engine& engine) {
    std::vector<Gone> gone;
    {
      const std::lock_guard guard(mutex_);
      std::erase_if(tickets_, [&](const auto& each) {
        const auto& [waiting, ticket] = each;
        if (ticket->answered.load()) return true;
        if (!ticket->abandoned()) return false;
        gone.emplace_back(waiting, ticket);
        return true;
      });
      gone.insert(gone.end(), gone_.begin(), gone_.end());
      gone_.clear();
    }
    // Without the lock: cancelling answers.
    std::erase_if(gone, [&](const Gone& each) {
      return engine.queue().cancel(each.first) || !engine::Engine::in_flight(each.first) || each.second.expired();
    });
    if (gone.empty()) return;
    const std::lock_guard guard(mutex_);
    gone_.insert(gone_.end(), gone.begin(), gone.end());
  }

 private:
  using Gone = std::pair<std::uint64_t, std::weak_ptr<const void>>;

  std::mutex mutex_;
  std::vector<Gone> gone_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Ticket>>> tickets_;
};

}  // namespace headgate::service

// What tests of handlers share: a whole service on a manual clock, without sockets, files or threads.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "policy/reader.h"
#include "service/service.h"

namespace headgate::test {

struct TestService {
  explicit TestService(std::string_view policies = {}, service::Auth auth = service::Auth::kLocal) {
    service::AccessOptions options;
    options.auth = auth;
    access = std::make_unique<service::Access>(*database, options, clock);
    engine::EngineOptions engine_options;
    engine_options.clock = &clock;
    engine_options.seed = 1;
    engine_options.sink = &notices;
    engine = std::make_unique<engine::Engine>(engine_options);
    if (!policies.empty()) load(policies);
    service.engine = engine.get();
    service.database = database.get();
    service.access = access.get();
    service.traffic = &traffic;
    service.notices = &notices;
    service.clock = &clock;
    service.wake = [this] { ++wakes; };
  }

  void load(std::string_view policies) {
    policy::ReadResult read = policy::read_text(policies, "test");
    for (const auto& problem : read.problems) ADD_FAILURE() << problem.message;
    EXPECT_TRUE(engine->load(std::move(read.document)));
  }
  std::string token(state::Role role, std::string agent = "") {
    return database->create_token({.role = role, .agent = std::move(agent), .name = "t"}, "t", clock.now())->secret;
  }

  ManualClock clock{std::chrono::seconds{1'000'000}};
  std::unique_ptr<state::Database> database{std::move(*state::Database::open(":memory:"))};
  std::unique_ptr<service::Access> access;
  observe::Traffic traffic;
  observe::Notices notices;
  std::unique_ptr<engine::Engine> engine;
  service::Service service;
  int wakes = 0;
};

// Runs what is posted when the test says so, as the connection's thread would.
class TestLink final : public net::Link {
 public:
  void post(std::function<void(net::Session&)> work) override {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  std::size_t run(net::Session& session) {
    std::deque<std::function<void(net::Session&)>> work;
    {
      const std::lock_guard lock(mutex_);
      work.swap(posted_);
    }
    for (const auto& each : work) each(session);
    return work.size();
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void(net::Session&)>> posted_;
};

}  // namespace headgate::test

#include "cluster/spread.h"

#include <gtest/gtest.h>

#include "api/http/http_api.h"
#include "service/settings.h"
#include "store/redis/client.h"
#include "support/redis_server.h"
#include "support/service.h"

namespace headgate::cluster {
namespace {

using test::eventually;
using test::RedisServer;

// A caller whose line can be cut.
class Line final : public store::redis::Caller {
 public:
  explicit Line(const RedisServer& server) {
    store::redis::Options options;
    options.url = *store::redis::parse_url(server.url());
    options.deadline = std::chrono::seconds{5};  // this is no test of deadlines
    client_ = *store::redis::Client::make(options, nullptr);
    EXPECT_TRUE(client_->wait_until_up(std::chrono::seconds{10}));
  }
  void call(store::redis::Command command, Done done) override {
    if (cut.load()) return done(Error{ErrorCode::kIo, "cut", true});
    client_->call(std::move(command), std::move(done));
  }
  std::atomic<bool> cut{false};

 private:
  std::unique_ptr<store::redis::Client> client_;
};

class Heard final : public observe::NoticeSink {
 public:
  void on_notice(const observe::Notice& notice) override {
    if (notice.kind != "control_conflict") return;
    text = notice.text;
    ++conflicts;
  }
  std::atomic<int> conflicts{0};
  std::string text;  // of the last; to be read after flush()
};

struct Node {
  Node(const RedisServer& server, std::string name, std::uint64_t seed = 7) : line(server) {
    test.notices.add(alerts);
    EXPECT_TRUE(policies.start().ok());
    options.node = std::move(name);
    options.seed = seed;
    options.every = std::chrono::milliseconds{5};
    restart();
  }
  // All that is remembered is in the database.
  void restart() {
    spread.reset();
    spread = std::make_unique<Spread>(line, test.service, policies, options);
  }
  // As the handlers do: on disk, then in force.
  void set(const char* section, const std::string& key, std::optional<std::string> value) {
    const state::Setting setting{section, key, std::move(value)};
    EXPECT_TRUE(test.database->change({&setting, 1}, {}));
    EXPECT_TRUE(service::apply_setting(test.service, setting));
  }
  [[nodiscard]] std::optional<Units> capacity_of(const std::string& agent) const {
    for (const engine::Override& each : test.engine->controls().overrides()) {
      if (each.agent == agent) return each.tiers[0]->capacity;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool is_exempt(const std::string& agent) const {
    const std::vector<std::string> all = test.engine->controls().exempt();
    return std::find(all.begin(), all.end(), agent) != all.end();
  }

  Line line;
  test::TestService test;
  std::shared_ptr<Heard> alerts = std::make_shared<Heard>();
  service::Policies policies{test.service, {}};
  SpreadOptions options;
  std::unique_ptr<Spread> spread;
};

std::string light(int capacity) {
  return R"({"light":{"capacity":)" + std::to_string(capacity) + R"(,"refill_per_minute":5}})";
}

class SpreadTest : public testing::Test {
 protected:
  RedisServer server;
};

TEST_F(SpreadTest, WhatIsSetOnOneNodeReachesTheOthers) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.set("override", "x", light(42));
  a.set("exempt", "y", "true");
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42 && b.is_exempt("y"); }));
  b.set("override", "x", std::nullopt);
  b.set("exempt", "y", std::nullopt);
  EXPECT_TRUE(eventually([&] { return !a.capacity_of("x") && !a.is_exempt("y"); }));
  EXPECT_EQ(b.test.database->settings("override").size(), 0U);
  EXPECT_EQ(a.test.database->settings("override").size(), 0U);
}

TEST_F(SpreadTest, PoliciesPutByApiReachTheOthers) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  const std::string policy =
      "id: p\nmatch: {operations: [op]}\nkey: [agent]\nlimit: {strategy: fixed_window, limit: 3, window: 60s}\n";
  ASSERT_TRUE(a.policies.put("p", policy, "test").ok());
  const auto has = [](const Node& node) { return node.policies.view().layers.policies.contains("p"); };
  EXPECT_TRUE(eventually([&] { return has(b); }));
  ASSERT_TRUE(b.policies.remove("p", "test").ok());
  EXPECT_TRUE(eventually([&] { return !has(a); }));
}

TEST_F(SpreadTest, ReportedLoadReachesTheOthersAndSoDoesItsEnd) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.spread->load_reported(0.5);
  EXPECT_TRUE(eventually([&] { return b.test.engine->controls().load_state().load.has_value(); }));
  a.spread->load_reported(std::nullopt);
  EXPECT_TRUE(eventually([&] { return !b.test.engine->controls().load_state().load.has_value(); }));
}

TEST_F(SpreadTest, ANewNodeHasWhatTheOthersHaveBeforeItServes) {
  Node a(server, "a");
  a.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  Node b(server, "b");
  b.spread->start();
  EXPECT_EQ(b.capacity_of("x"), 42);
}

TEST_F(SpreadTest, WhatANodeHadBeforeItMetTheOthersIsHandedOn) {
  Node a(server, "a");
  a.set("override", "x", light(42));
  a.spread->start();
  Node b(server, "b");
  b.spread->start();
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42; }));
}

TEST_F(SpreadTest, ANodeThatWasCutOffCatchesUp) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  b.line.cut = true;
  a.set("override", "x", light(42));
  b.set("override", "y", light(7));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  EXPECT_EQ(b.capacity_of("x"), std::nullopt);
  b.line.cut = false;
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42 && a.capacity_of("y") == 7; }));
  EXPECT_EQ(a.alerts->conflicts + b.alerts->conflicts, 0);
}

TEST_F(SpreadTest, OfTwoChangesAtOnceTheFirstToReachRedisIsKeptAndBothAreTold) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  b.line.cut = true;
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  b.set("override", "x", light(7));
  b.line.cut = false;
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42 && b.spread->unsent() == 0; }));
  EXPECT_EQ(a.capacity_of("x"), 42);
  b.test.notices.flush();
  EXPECT_EQ(b.alerts->conflicts, 1);
}

TEST_F(SpreadTest, WhatWasSetWhileRedisWasAwayIsHandedOnAfterARestart) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.set("override", "changed", light(42));
  a.set("override", "removed", light(42));
  EXPECT_TRUE(eventually([&] { return b.capacity_of("changed") == 42 && b.capacity_of("removed") == 42; }));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  a.line.cut = true;
  a.set("override", "changed", light(7));
  a.set("override", "removed", std::nullopt);
  a.set("exempt", "new", "true");
  a.restart();
  EXPECT_EQ(a.spread->unsent(), 0U);
  a.spread->start();
  EXPECT_EQ(a.spread->unsent(), 3U);
  a.line.cut = false;
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  EXPECT_TRUE(
      eventually([&] { return b.capacity_of("changed") == 7 && !b.capacity_of("removed") && b.is_exempt("new"); }));
  EXPECT_EQ(a.capacity_of("changed"), 7);
  EXPECT_EQ(a.alerts->conflicts + b.alerts->conflicts, 0);
}

TEST_F(SpreadTest, WhatWasAlsoSetElsewhereMeanwhileIsAConflictAfterARestartToo) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42 && a.spread->unsent() == 0; }));
  a.line.cut = true;
  a.set("override", "x", light(7));
  a.restart();
  b.set("override", "x", light(9));
  EXPECT_TRUE(eventually([&] { return b.spread->unsent() == 0; }));
  a.line.cut = false;
  a.spread->start();
  EXPECT_TRUE(eventually([&] { return a.capacity_of("x") == 9; }));
  a.test.notices.flush();
  EXPECT_EQ(a.alerts->conflicts, 1);
  EXPECT_NE(a.alerts->text.find("kept " + light(9) + ", lost " + light(7)), std::string::npos) << a.alerts->text;
}

TEST_F(SpreadTest, ARestartFindsNothingNewWhereNothingHasChanged) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.set("override", "x", light(42));
  a.set("exempt", "y", "true");
  b.set("exempt", "z", "true");
  b.set("exempt", "z", std::nullopt);
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42 && b.is_exempt("y") && b.spread->unsent() == 0; }));
  const std::size_t audited = b.test.database->audit({})->size();
  const std::string version = server.ask({"GET", "headgate:{control}:version"});
  b.restart();
  b.spread->start();
  EXPECT_EQ(b.spread->unsent(), 0U);
  EXPECT_EQ(b.test.database->audit({})->size(), audited);
  EXPECT_EQ(server.ask({"GET", "headgate:{control}:version"}), version);
}

TEST_F(SpreadTest, WhatANodeCouldNotTakeOverIsNotUndoneByItsRestart) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42; }));
  b.spread.reset();
  // As a node of a newer version may have set it.
  const std::string strange = "9999999999999999 newer ={\"weightless\": 1}";
  server.ask({"HSET", "headgate:{control}:fields", "override/x", strange});
  server.ask({"HSET", "headgate:{control}:fields", "gravity/x", strange});
  server.ask({"SET", "headgate:{control}:version", "9999999999999999"});
  for (int starts = 0; starts < 2; ++starts) {
    b.restart();
    b.spread->start();
    EXPECT_EQ(b.spread->unsent(), 0U);
    EXPECT_EQ(b.capacity_of("x"), 42);
  }
  EXPECT_EQ(server.ask({"HGET", "headgate:{control}:fields", "override/x"}), strange);
  EXPECT_EQ(server.ask({"HGET", "headgate:{control}:fields", "gravity/x"}), strange);
}

TEST_F(SpreadTest, TheAuditLogSaysWhatStoodBeforeAChangeOfAnotherNode) {
  Node a(server, "a");
  Node b(server, "b");
  a.spread->start();
  b.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42; }));
  a.set("override", "x", light(7));
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 7; }));
  const std::vector<state::AuditEntry> entries = b.test.database->audit({.action = "override."}).value();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].who, "node a");
  EXPECT_EQ(entries[0].before, light(42));
  EXPECT_EQ(entries[0].after, light(7));
  EXPECT_EQ(entries[1].before, "");
}

TEST_F(SpreadTest, WhatWasAgreedOnWithOneRedisMeansNothingToAnother) {
  RedisServer elsewhere;
  Node other(elsewhere, "other", 8);
  other.spread->start();
  other.set("override", "x", light(5));
  EXPECT_TRUE(eventually([&] { return other.spread->unsent() == 0; }));
  Node a(server, "a");
  a.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  Node moved(elsewhere, "moved", 8);
  for (const state::Setting& setting : a.test.database->settings("agreed 7")) {
    EXPECT_TRUE(moved.test.database->note({&setting, 1}));
  }
  moved.set("override", "x", light(42));
  moved.spread->start();
  EXPECT_TRUE(eventually([&] { return moved.capacity_of("x") == 5; }));
  EXPECT_EQ(other.capacity_of("x"), 5);
}

TEST_F(SpreadTest, ARedisThatWasEmptiedWhileANodeWasDownIsFilledAgain) {
  Node a(server, "a");
  a.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  a.restart();
  server.ask({"FLUSHALL"});
  a.spread->start();
  Node b(server, "b");
  b.spread->start();
  EXPECT_TRUE(eventually([&] { return b.capacity_of("x") == 42; }));
  EXPECT_EQ(a.capacity_of("x"), 42);
}

TEST_F(SpreadTest, ARedisThatWasEmptiedIsFilledAgain) {
  Node a(server, "a");
  a.spread->start();
  a.set("override", "x", light(42));
  EXPECT_TRUE(eventually([&] { return a.spread->unsent() == 0; }));
  server.ask({"FLUSHALL"});
  EXPECT_TRUE(eventually([&] {
    return !server.ask({"HGET", "headgate:{control}:fields", "override/x"}).starts_with("(");
  }));
  EXPECT_TRUE(eventually([&] { return server.ask({"GET", "headgate:{control}:seed"}) == "7"; }));
  EXPECT_EQ(a.capacity_of("x"), 42);
}

TEST_F(SpreadTest, NodesAreCountedWhileTheyAreHeardOf) {
  Node a(server, "a");
  a.spread->start();
  EXPECT_EQ(a.spread->nodes(), 1U);
  Node b(server, "b");
  b.spread->start();
  EXPECT_TRUE(eventually([&] { return a.spread->nodes() == 2; }));
  EXPECT_EQ(b.spread->nodes(), 2U);
}

}  // namespace
}  // namespace headgate::cluster

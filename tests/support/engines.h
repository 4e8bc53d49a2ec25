// What engine tests share: a short form of checks, a sink that records, and an engine on a manual clock.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/owned_check.h"
#include "policy/reader.h"

namespace headgate::test {

// A check that owns what it says.
class Q {
 public:
  explicit Q(std::string_view operation) { check_.operation = keep(operation); }
  Q(Q&&) = default;
  Q& operator=(Q&&) = default;

  Q& agent(std::string_view text) { return set(&Check::agent, text); }
  Q& session(std::string_view text) { return set(&Check::session, text); }
  Q& user(std::string_view text) { return set(&Check::user, text); }
  Q& tenant(std::string_view text) { return set(&Check::tenant, text); }
  Q& plan(std::string_view text) { return set(&Check::plan, text); }
  Q& channel(std::string_view text) { return set(&Check::channel, text); }
  Q& ip(std::string_view text) { return set(&Check::ip, text); }
  Q& context(std::string_view text) { return set(&Check::context, text); }
  Q& resource(std::string_view text) { return set(&Check::resource, text); }
  Q& parent(std::string_view session, std::string_view agent = {}) {
    return set(&Check::parent_session, session).set(&Check::parent_agent, agent);
  }
  Q& attr(std::string_view name, Value value) {
    value.text = keep(value.text);
    attributes_.push_back({keep(name), value});
    check_.attributes = attributes_;
    return *this;
  }
  Q& cost(double amount) { return cost("requests", amount); }
  Q& cost(std::string_view unit, double amount) {
    costs_.push_back({keep(unit), amount});
    check_.costs = costs_;
    return *this;
  }
  Q& peek() {
    check_.peek = true;
    return *this;
  }
  Q& hold() {
    check_.hold = true;
    return *this;
  }
  Q& priority(int priority) {
    check_.priority = priority;
    return *this;
  }
  Q& max_wait(Nanos most) {
    check_.max_wait = most;
    return *this;
  }
  [[nodiscard]] const Check& get() const { return check_; }

 private:
  std::string_view keep(std::string_view text) { return texts_.emplace_back(text); }
  Q& set(std::string_view Check::*field, std::string_view text) {
    check_.*field = keep(text);
    return *this;
  }

  std::deque<std::string> texts_;
  std::vector<Attribute> attributes_;
  std::vector<Cost> costs_;
  Check check_;
};

// An event that owns what it says.
struct Told {
  engine::Event::Kind kind;
  std::string agent;
  std::string operation;
  std::string policy_id;
  std::string to;
  std::string text;
  double value;
};

class Listener final : public engine::EventSink {
 public:
  void on_event(const engine::Event& event) noexcept override {
    const std::lock_guard guard(mutex_);
    told_.push_back({event.kind, std::string(event.agent), std::string(event.operation), std::string(event.policy_id),
                     std::string(event.to), std::string(event.text), event.value});
  }
  [[nodiscard]] std::vector<Told> all(engine::Event::Kind kind) const {
    const std::lock_guard guard(mutex_);
    std::vector<Told> found;
    for (const Told& told : told_) {
      if (told.kind == kind) found.push_back(told);
    }
    return found;
  }
  [[nodiscard]] std::size_t count(engine::Event::Kind kind) const { return all(kind).size(); }

 private:
  mutable std::mutex mutex_;
  std::vector<Told> told_;
};

inline policy::Document read(const std::string& yaml) {
  policy::ReadResult result = policy::read_text(yaml, "test.yaml");
  for (const policy::Problem& problem : result.problems) ADD_FAILURE() << problem.text() << "\n" << yaml;
  return std::move(result.document);
}

class EngineFixture : public testing::Test {
 protected:
  using Event = engine::Event;
  // A full hour, so that windows, hours and buckets all begin at it.
  static constexpr Nanos kStart = std::chrono::seconds{1'699'999'200};

  void load(const std::string& yaml) {
    const Result<void> loaded = engine_.load(read(yaml));
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
  engine::CheckDecision ask(const Q& q) { return engine_.check(q.get()); }
  engine::CheckDecision ask(std::string_view agent, std::string_view operation = "run") {
    return ask(Q(operation).agent(agent));
  }
  engine::CheckDecision peek(std::string_view agent, std::string_view operation = "run") {
    return ask(Q(operation).agent(agent).peek());
  }
  // How many of these are allowed one after the other, up to `most`.
  int allowed(const Q& q, int most = 100) {
    int count = 0;
    while (count < most && ask(q).allowed) ++count;
    return count;
  }
  int allowed(std::string_view agent, int most = 100) { return allowed(Q("run").agent(agent), most); }
  // What each limit of each policy that matches has left.
  std::map<std::string, std::vector<double>> left(const Q& q) {
    std::map<std::string, std::vector<double>> found;
    // At no cost: otherwise it would be what is left when that has been charged.
    std::vector<Cost> nothing(q.get().costs.begin(), q.get().costs.end());
    if (nothing.empty()) nothing.push_back({"requests", 0});
    for (Cost& cost : nothing) cost.amount = 0;
    Check check = q.get();
    check.costs = nothing;
    for (const engine::Explained& about : engine_.explain(check).policies) {
      for (const auto& cell : about.cells) found[about.policy->id].push_back(cell.remaining);
    }
    return found;
  }
  engine::Counts counts(const std::string& id) {
    for (const auto& [name, counts] : engine_.aftermath().counts()) {
      if (name == id) return counts;
    }
    return {};
  }

  ManualClock clock_{kStart};
  Listener listener_;
  engine::Engine engine_{{.clock = &clock_, .sink = &listener_}};
};

// The ids of every policy that a decision speaks of.
inline std::vector<std::string> ids(const engine::CheckDecision& decision) {
  std::vector<std::string> all;
  for (const engine::Judged& judged : decision.judged) all.push_back(decision.policy(judged).id);
  return all;
}

inline std::vector<std::string> kinds(const engine::CheckDecision& decision) {
  std::vector<std::string> all;
  for (const engine::Warning& warning : decision.warnings) all.emplace_back(to_string(warning.kind));
  return all;
}

}  // namespace headgate::test

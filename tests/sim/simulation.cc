#include "sim/simulation.h"

#include <array>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "core/compiled_limit.h"
#include "sim/meter.h"
#include "store/redis/leased_store.h"
#include "support/lease_redis.h"

namespace headgate::sim {
namespace {

using store::Charge;
using store::RemoteStore;
using store::redis::Command;
using store::redis::LeasedStore;

constexpr Nanos kStart = std::chrono::hours{1};  // windows are aligned to it
constexpr Nanos kDeadline = std::chrono::milliseconds{20};

// What happens next. Events of one instant happen in the order in which they were thought of.
class Agenda {
 public:
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  void at(Nanos when, std::function<void()> what) { events_.push({when, order_++, std::move(what)}); }
  void after(Nanos wait, std::function<void()> what) { at(now_ + wait, std::move(what)); }
  void run_until(Nanos end) {
    while (!events_.empty() && events_.top().when <= end) {
      // The queue gives out no way to move from it, but what is popped next may be moved from.
      Event event = std::move(const_cast<Event&>(events_.top()));
      events_.pop();
      now_ = event.when;
      event.what();
    }
  }

 private:
  struct Event {
    Nanos when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const noexcept {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  Nanos now_ = kStart;
  std::uint64_t order_ = 0;
  std::priority_queue<Event> events_;
};

core::CompiledLimit limit_of(const Scenario& scenario) {
  const Window window{scenario.limit, scenario.span, 0};
  switch (scenario.strategy) {
    case Strategy::kSlidingWindow: return core::compile(*Limit::sliding_window(window));
    case Strategy::kSlidingWindowCounter: return core::compile(*Limit::sliding_window_counter(window));
    case Strategy::kFixedWindow: return core::compile(*Limit::fixed_window(window));
    case Strategy::kGcra: return core::compile(*Limit::gcra({scenario.limit - 1, scenario.limit, scenario.span, 0}));
    default: return core::compile(*Limit::token_bucket({scenario.limit, {scenario.limit, scenario.span}, 0}));
  }
}

class World;

// One node's line to the store: every message may be late or lost, and what is not answered in time has failed.
class Line final : public RemoteStore, public store::redis::Caller {
 public:
  explicit Line(World& world) : world_(world) {}
  ~Line() override { *alive_ = false; }
  void apply(std::span<const Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
             RemoteStore::Done done) override;
  void refund(const Charge& charge, Nanos charged_at, Told told) override;
  void release(const Charge&, LeaseId, Told) override {}
  void renew(const Charge&, LeaseId, Told) override {}
  [[nodiscard]] Nanos now_approx() const noexcept override { return {}; }
  void call(Command command, store::redis::Caller::Done done) override;

 private:
  // Carries `there` to the store, and what it returns, to be done here, back. `failed` if that takes too long. A node
  // that has crashed hears of neither. Messages arrive in the order in which they were sent, but for a few that were
  // stuck: those come past the deadline, when what they ask for has long been given up.
  void carry(std::function<std::function<void()>()> there, std::function<void()> failed);

  // When something sent now arrives that way.
  [[nodiscard]] Nanos arrival(Nanos& last);

  World& world_;
  Nanos last_there_{0};
  Nanos last_here_{0};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class NodeClock final : public Clock {
 public:
  NodeClock(const Agenda& agenda, Nanos ahead) : agenda_(agenda), ahead_(ahead) {}
  [[nodiscard]] Nanos now() const noexcept override { return agenda_.now() + ahead_; }

 private:
  const Agenda& agenda_;
  Nanos ahead_;  // no two nodes' clocks agree, and none need to
};

struct Node {
  Node(World& world, std::string name, Nanos ahead);
  NodeClock clock;
  Line line;
  LeasedStore leases;
};

class World {
 public:
  explicit World(const Scenario& scenario)
      : scenario_(scenario),
        random_(scenario.seed),
        compiled_(limit_of(scenario)),
        live_(compiled_),
        ideal_({.max_cells = 16, .seed = 1}),
        meter_(scenario.strategy, scenario.limit, scenario.span) {
    settings_ = scenario.settings;
    if (scenario.share_in_truth > 0) settings_.share = scenario.share_in_truth;
    charge_.key = {0x5EED, 0xCE11};
    charge_.limit = &live_;
    charge_.cost = 1;
    charge_.leased = true;
  }

  Findings run() {
    nodes_.resize(static_cast<std::size_t>(scenario_.nodes));
    std::vector<double> weights;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      start(i);
      weights.push_back(scenario_.skew == Skew::kZipf ? 1.0 / static_cast<double>(i + 1) : 1.0);
    }
    who_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
    next_spell();
    next_arrival();
    if (scenario_.crashes > 0) next_crash();
    agenda_.run_until(kStart + scenario_.length);

    findings_.commands = redis_.commands();
    findings_.over = meter_.over();
    for (const auto& node : nodes_) bury(node.get());
    const auto bounds =
        store::redis::lease_bounds(compiled_, scenario_.settings, static_cast<std::int64_t>(findings_.losses));
    findings_.over_bound = bounds.over;
    findings_.stranded_bound = bounds.under;
    return findings_;
  }

  [[nodiscard]] Agenda& agenda() noexcept { return agenda_; }
  [[nodiscard]] const store::redis::LeaseSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] test::LeaseRedis& redis() noexcept { return redis_; }
  // What a check of its own was charged is admitted then and there; a block is not, until it is used.
  void charged(const Charge& charge) {
    if (charge.counted) {
      meter_.admitted(charge.cost, agenda_.now());
    } else {
      move_stock(charge.cost);
    }
  }
  void refunded(Units units) { move_stock(-units); }

  [[nodiscard]] Nanos delay(double mean_ms) {
    return Nanos{static_cast<std::int64_t>(std::exponential_distribution(1 / mean_ms)(random_) * 1e6)};
  }
  [[nodiscard]] double delay_ms() const noexcept { return scenario_.delay_ms; }
  [[nodiscard]] bool chance(double part) { return std::uniform_real_distribution(0.0, 1.0)(random_) < part; }
  [[nodiscard]] double lost() const noexcept { return scenario_.lost; }
  // A charge as the store sees it: the node's own copy of the limit may be gone by then.
  [[nodiscard]] Charge charge_of(Units cost, bool counted = true) const noexcept {
    Charge charge = charge_;
    charge.cost = cost;
    charge.counted = counted;
    return charge;
  }

 private:
  void start(std::size_t i) {
    const Nanos ahead = std::chrono::milliseconds{random_() % 1'000'000};
    nodes_[i] = std::make_unique<Node>(*this, "n" + std::to_string(++names_), ahead);
    const Nanos round = scenario_.settings.ttl / static_cast<std::int64_t>(LeasedStore::kRounds);
    maintain_every(round, i, nodes_[i].get());
  }

  void maintain_every(Nanos round, std::size_t i, Node* node) {
    agenda_.after(round, [this, round, i, node] {
      if (nodes_[i].get() != node) return;
      node->leases.maintain();
      maintain_every(round, i, node);
    });
  }

  // Demand comes in spells of every strength: leases are tried hardest when one ends or begins.
  void next_spell() {
    constexpr std::array kStrengths{0.1, 0.5, 1.0, 3.0};
    strength_ = kStrengths[random_() % kStrengths.size()];
    agenda_.after(delay(300), [this] { next_spell(); });
  }

  void next_arrival() {
    const double seconds = std::chrono::duration<double>(scenario_.span).count();
    const double rate = static_cast<double>(scenario_.limit) / seconds * scenario_.demand * strength_;
    const double wait = std::exponential_distribution(rate)(random_);
    agenda_.after(Nanos{static_cast<std::int64_t>(wait * 1e9) + 1}, [this] {
      arrive(who_(random_), chance(0.1) ? 3 : 1);
      next_arrival();
    });
  }

  void arrive(std::size_t i, Units cost) {
    Node* node = nodes_[i].get();
    if (node == nullptr) return;  // it is down: no check is answered, and none is counted
    ++findings_.checks;
    findings_.asked += static_cast<std::uint64_t>(cost);
    const Charge charge = charge_of(cost);
    core::Outcome outcome;
    store::Ask ask;
    ask.now = ask.wall = agenda_.now();
    if (ideal_.apply({&charge, 1}, ask, {&outcome, 1}).wait == Nanos{0}) {
      findings_.ideal += static_cast<std::uint64_t>(cost);
    }

    const auto at_once = node->leases.try_now({&charge, 1}, {.now = node->clock.now()}, {&outcome, 1});
    if (!at_once.has_value()) {
      ask_strictly(*node, cost);
      return;
    }
    ++findings_.local;
    if (at_once->wait != Nanos{0}) return;
    findings_.admitted += static_cast<std::uint64_t>(cost);
    meter_.admitted(cost, agenda_.now());
    if (findings_.checks % 64 == 0) look_at_nodes();
    move_stock(-cost);
  }

  void ask_strictly(Node& node, Units cost) {
    struct Asked {
      Charge charge;
      core::Outcome outcome;
    };
    auto asked = std::make_shared<Asked>();
    asked->charge = charge_of(cost);
    node.leases.apply({&asked->charge, 1}, {}, {&asked->outcome, 1},
                      [this, asked, cost](const Result<RemoteStore::Answer>& answer) {
                        if (answer.has_value() && answer->applied.wait == Nanos{0}) {
                          findings_.admitted += static_cast<std::uint64_t>(cost);
                        }
                      });
  }

  void next_crash() {
    const double wait = std::exponential_distribution(scenario_.crashes)(random_);
    agenda_.after(Nanos{static_cast<std::int64_t>(wait * 1e9)}, [this] {
      crash(who_(random_));
      next_crash();
    });
  }

  void crash(std::size_t i) {
    if (nodes_[i] == nullptr) return;
    bury(nodes_[i].get());
    if (nodes_[i]->leases.totals().units > 0) ++findings_.losses;
    nodes_[i].reset();
    const double down = std::exponential_distribution(2.0)(random_);
    agenda_.after(Nanos{static_cast<std::int64_t>(down * 1e9)}, [this, i] { start(i); });
  }

  void bury(const Node* node) {
    if (node != nullptr) findings_.losses += node->leases.totals().failed;
  }

  void look_at_nodes() {
    Units units = 0;
    for (const auto& node : nodes_) {
      if (node != nullptr) units += node->leases.totals().units;
    }
    findings_.usable = std::max(findings_.usable, units);
  }

  void move_stock(Units units) {
    stock_ += units;
    findings_.stranded = std::max(findings_.stranded, stock_);
  }

  const Scenario scenario_;
  std::mt19937_64 random_;
  Agenda agenda_;
  test::LeaseRedis redis_;
  const core::CompiledLimit compiled_;
  const store::LiveLimit live_;
  store::redis::LeaseSettings settings_;
  Charge charge_;
  store::MemoryStore ideal_;
  Meter meter_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::discrete_distribution<std::size_t> who_;
  double strength_ = 1;
  std::uint64_t names_ = 0;
  Units stock_ = 0;
  Findings findings_;
};

Node::Node(World& world, std::string name, Nanos ahead)
    : clock(world.agenda(), ahead),
      line(world),
      leases(
          line, line,
          {.prefix = "sim:", .node = std::move(name), .max_cells = 16, .clock = &clock, .settings = world.settings()}) {
}

Nanos Line::arrival(Nanos& last) {
  const Nanos now = world_.agenda().now();
  if (world_.chance(0.0005)) return now + kDeadline + world_.delay(100);
  return last = std::max(last, now + world_.delay(world_.delay_ms()));
}

void Line::carry(std::function<std::function<void()>()> there, std::function<void()> failed) {
  struct Letter {
    std::shared_ptr<bool> alive;
    std::function<std::function<void()>()> there;
    std::function<void()> failed;
    bool settled = false;
  };
  auto letter = std::make_shared<Letter>();
  *letter = {alive_, std::move(there), std::move(failed), false};
  Agenda& agenda = world_.agenda();
  agenda.after(kDeadline, [letter] {
    if (letter->settled || !*letter->alive) return;
    letter->settled = true;
    letter->failed();
  });
  if (world_.chance(world_.lost())) return;
  agenda.at(arrival(last_there_), [this, letter, &world = world_] {
    std::function<void()> back = letter->there();
    if (!*letter->alive || world.chance(world.lost())) return;
    world.agenda().at(arrival(last_here_), [letter, back = std::move(back)] {
      if (letter->settled || !*letter->alive) return;
      letter->settled = true;
      back();
    });
  });
}

void Line::apply(std::span<const Charge> charges, const store::Ask& ask, std::span<core::Outcome> outcomes,
                 RemoteStore::Done done) {
  const Charge charge = world_.charge_of(charges[0].cost, charges[0].counted);
  carry(
      [&world = world_, charge, ask, outcomes, done]() -> std::function<void()> {
        core::Outcome outcome;
        Answer answer;
        answer.at = world.agenda().now();
        answer.applied = world.redis().apply({&charge, 1}, ask, {&outcome, 1}, answer.at);
        if (answer.applied.wait == Nanos{0}) world.charged(charge);
        return [outcomes, outcome, answer, done] {
          outcomes[0] = outcome;
          done(answer);
        };
      },
      [done] {
        done(Error{ErrorCode::kIo, "no answer in time", true});
      });
}

void Line::refund(const Charge& charge, Nanos charged_at, Told told) {
  carry(
      [&world = world_, charge = world_.charge_of(charge.cost), charged_at, told]() -> std::function<void()> {
        world.redis().refund(charge, charged_at, world.agenda().now());
        world.refunded(charge.cost);
        return [told] { told(true); };
      },
      [told] {
        told(Error{ErrorCode::kIo, "no answer in time", true});
      });
}

void Line::call(Command command, store::redis::Caller::Done done) {
  carry(
      [&world = world_, command = std::move(command), done]() -> std::function<void()> {
        const auto numbers = world.redis().hold(command, world.agenda().now());
        return [numbers, done] { test::answer_with(numbers, done); };
      },
      [done] {
        done(Error{ErrorCode::kIo, "no answer in time", true});
      });
}

}  // namespace

Findings run(const Scenario& scenario) { return World(scenario).run(); }

}  // namespace headgate::sim

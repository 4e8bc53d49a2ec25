#include "cluster/shared_store.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <semaphore>
#include <vector>

#include "base/hash.h"
#include "observe/log.h"

namespace headgate::cluster {
namespace {

using namespace std::chrono_literals;
using observe::log;
using observe::LogLevel;
using store::redis::Reply;

// Clocks that are farther apart make windows end at visibly different times.
constexpr Nanos kSkewed = 500ms;

// How long the shutdown waits for leased units to go back; those that do not are charged until they lapse.
constexpr Nanos kGiveBackWithin = 1s;

std::string made_up_name() { return fmt::format("{:016x}", base::random_seed()); }

}  // namespace

std::string seed_key(const std::string& prefix) { return prefix + "{control}:seed"; }

Result<std::unique_ptr<SharedStore>> SharedStore::open(const StoreConfig& config, observe::Notices& notices,
                                                       const Clock& clock) {
  Result<store::redis::Url> url = store::redis::parse_url(config.url);
  if (!url) return Error{url.error().code, "store.url: " + url.error().message};
  store::redis::Options options;
  options.url = *std::move(url);
  options.tls = {config.ca, config.cert, config.key, config.server_name};
  options.sentinel_user = config.sentinel_user;
  if (!config.sentinel_password.empty()) options.sentinel_password = config.sentinel_password;
  options.deadline = config.deadline;
  std::unique_ptr<SharedStore> made(new SharedStore(config, notices, clock));
  const bool cluster = options.url.kind == store::redis::Url::Kind::kCluster;
  Result<std::unique_ptr<store::redis::Client>> client = store::redis::Client::make(options, made.get());
  if (!client) return Error{client.error().code, "store: " + client.error().message};
  made->client_ = *std::move(client);
  made->store_ = std::make_unique<store::redis::RedisStore>(
      *made->client_,
      store::redis::RedisStore::Options{.prefix = config.prefix,
                                        .cluster = cluster,
                                        .on_fault = [to = made.get()](const Error& error) { to->on_fault(error); }});
  store::redis::LeasedStore::Options leases;
  leases.prefix = config.prefix;
  leases.node = made->node_ + "." + made_up_name();  // another one after a restart
  leases.clock = &clock;
  leases.settings = made->lease_settings_;
  made->leases_ = std::make_unique<store::redis::LeasedStore>(*made->store_, *made->client_, std::move(leases));
  return made;
}

SharedStore::SharedStore(const StoreConfig& config, observe::Notices& notices, const Clock& clock)
    : config_(config),
      node_(config.node.empty() ? made_up_name() : config.node),
      notices_(notices),
      clock_(clock),
      lease_settings_{.share = config.leased_percent / 100.0} {}

SharedStore::~SharedStore() { stop(); }

Result<std::uint64_t> SharedStore::seed(std::uint64_t kept, Nanos at_most) {
  const auto unreachable = [&](const std::string& why) {
    return Error{ErrorCode::kIo, fmt::format("store: Redis must be there when a server first meets it: {}", why), true};
  };
  const Nanos until = clock_.now() + at_most;
  if (!client_->wait_until_up(at_most)) return unreachable(client_->why());
  const std::string key = seed_key(config_.prefix);
  const std::string fresh = std::to_string(kept != 0 ? kept : base::random_seed());
  Result<std::uint64_t> seed = unreachable("it did not answer");
  bool late = false;
  const auto say = [&](std::initializer_list<std::string_view> words) {
    store::redis::Command command;
    store::redis::append_words(std::span(words.begin(), words.size()), command.wire);
    command.slot = store::redis::slot_of(key);
    ask_and_wait(*client_, std::move(command), [&](const Result<Reply>& reply) {
      std::uint64_t value = 0;
      late = late || (!reply && reply.error().code == ErrorCode::kTimedOut);
      if (!reply) {
        seed = unreachable(reply.error().message);
      } else if (reply->is_text()) {
        const std::string_view text = reply->text();
        const char* end = text.data() + text.size();
        if (std::from_chars(text.data(), end, value).ptr == end && value != 0) seed = value;
      }
    });
  };
  // One late answer is no reason to refuse the start. Each attempt takes as long as the deadline.
  do {
    late = false;
    say({"SET", key, fresh, "NX"});
    say({"GET", key});
  } while (!seed && late && clock_.now() < until);
  return seed;
}

void SharedStore::start(std::function<void()> tick) {
  const Nanos every = lease_settings_.ttl / static_cast<int>(store::redis::LeasedStore::kRounds);
  ticking_ = std::make_unique<base::Repeating>(every, [this, tick = std::move(tick)] {
    leases_->maintain();
    tick();
  });
}

void SharedStore::stop() {
  end_ticks();
  if (leases_ != nullptr) {
    auto given_back = std::make_shared<std::binary_semaphore>(0);
    leases_->close([given_back] { given_back->release(); });
    if (!given_back->try_acquire_for(kGiveBackWithin)) {
      log(LogLevel::kWarn, "leased units were not given back; they count until they lapse");
    }
  }
  client_.reset();
}

void SharedStore::apply(std::span<const store::Charge> charges, const store::Ask& ask,
                        std::span<core::Outcome> outcomes, Done done) {
  leases_->apply(charges, ask, outcomes, std::move(done));
}

std::optional<store::Applied> SharedStore::try_now(std::span<const store::Charge> charges, const store::Ask& ask,
                                                   std::span<core::Outcome> outcomes) {
  return leases_->try_now(charges, ask, outcomes);
}

void SharedStore::refund(const store::Charge& charge, Nanos charged_at, Told told) {
  leases_->refund(charge, charged_at, std::move(told));
}

void SharedStore::release(const store::Charge& charge, LeaseId lease, Told told) {
  leases_->release(charge, lease, std::move(told));
}

void SharedStore::renew(const store::Charge& charge, LeaseId lease, Told told) {
  leases_->renew(charge, lease, std::move(told));
}

Result<void> SharedStore::ready() const {
  if (is_up()) return {};
  return Error{ErrorCode::kIo, "store: " + client_->why(), true};
}

void SharedStore::tell(std::string kind, std::string text, double value) {
  notices_.tell({.kind = std::move(kind), .time = clock_.wall(clock_.now()), .text = std::move(text), .value = value});
}

Nanos SharedStore::up_for() const noexcept { return is_up() ? clock_.now() - up_since_.load() : Nanos{0}; }

void SharedStore::announce() {
  const std::lock_guard guard(announcing_);
  announced_ = true;
  if (away_) tell("store_down", *away_, 0);
}

void SharedStore::on_down(const std::string& why) {
  const std::lock_guard guard(announcing_);
  away_ = why;
  if (announced_) tell("store_down", why, 0);
}

void SharedStore::on_up(Nanos after) {
  up_since_ = clock_.now();
  const std::lock_guard guard(announcing_);
  away_.reset();
  if (!announced_) return;
  const double seconds = static_cast<double>(after.count()) / 1e9;
  tell("store_up", fmt::format("Redis answers again after {:.1f} s", seconds), seconds);
}

void SharedStore::on_problem(std::string_view kind, const std::string& text) {
  tell("store_problem", fmt::format("{}: {}", kind, text), 0);
}

void SharedStore::on_fault(const Error& error) {
  std::string_view kind = error.code == ErrorCode::kCorrupt ? "WRONGTYPE" : "LIMIT";
  {
    const std::lock_guard guard(faults_mutex_);
    if (!faults_.begins(kind, clock_.now())) return;
  }
  on_problem(kind, error.message);
}

void SharedStore::stood_in(std::uint64_t checks) {
  const std::uint64_t more = checks - std::exchange(stand_ins_, checks);
  if (more == 0) {
    if (is_up()) standing_in_ = false;
    return;
  }
  if (std::exchange(standing_in_, true)) return;
  tell("store_stand_in",
       "checks are judged by this server alone, each policy by its on_store_failure, until Redis is back",
       static_cast<double>(more));
}

void SharedStore::on_clock(Nanos offset) {
  const Nanos apart = offset < Nanos{0} ? -offset : offset;
  const double millis = static_cast<double>(offset.count()) / 1e6;
  // Told once, and again only after the clocks had come well together.
  if (apart < kSkewed / 2 && skewed_.exchange(false)) {
    tell("clock_agrees", fmt::format("the clock of Redis is {:+.0f} ms from this server's again", millis), millis);
  }
  if (apart < kSkewed || skewed_.exchange(true)) return;
  tell("clock_skew", fmt::format("the clock of Redis is {:+.0f} ms from this server's", millis), millis);
}

}  // namespace headgate::cluster

#include "cluster/membership.h"

#include <cstdlib>
#include <utility>

#include "observe/log.h"

namespace headgate::cluster {
namespace {

constexpr Nanos kRecoverEvery = std::chrono::seconds{1};
// After this time every node that reaches Redis again has made up for the outage: each looks once a second.
constexpr Nanos kOthersMakeUp = std::chrono::seconds{2};

}  // namespace

Result<std::unique_ptr<Membership>> Membership::open(const StoreConfig& config, state::Database& database,
                                                     observe::Notices& notices) {
  Result<std::unique_ptr<SharedStore>> store = SharedStore::open(config, notices, SystemClock::shared());
  if (!store) return std::move(store).error();
  std::unique_ptr<Membership> membership(new Membership(config));
  membership->store_ = *std::move(store);
  if (Result<void> agreed = membership->agree_on_seed(database); !agreed) return std::move(agreed).error();
  return membership;
}

Result<void> Membership::agree_on_seed(state::Database& database) {
  std::uint64_t kept = 0;
  for (const state::Setting& setting : database.settings("store")) {
    if (setting.key == "seed" && setting.value) kept = std::strtoull(setting.value->c_str(), nullptr, 10);
  }
  const Nanos at_most = std::chrono::seconds{kept == 0 ? 5 : 1};
  const Result<std::uint64_t> seed = store_->seed(kept, at_most);
  if (!seed && kept == 0) return seed.error();
  if (!seed) {
    observe::log(observe::LogLevel::kWarn, "Redis is away; serving without it until it is back",
                 {{"problem", seed.error().message}});
  }
  seed_ = seed ? *seed : kept;
  if (seed_ == kept) return {};
  const state::Setting setting{"store", "seed", std::to_string(seed_)};
  state::AuditEntry entry;
  entry.time = SystemClock::shared().wall(SystemClock::shared().now());
  entry.who = "server";
  entry.action = "store.join";
  entry.target = config_.prefix;
  return database.change({&setting, 1}, entry);
}

void Membership::join(service::Service& service, service::Policies& policies, service::Quotas& quotas) {
  spread_ = std::make_unique<Spread>(store_->caller(), service, policies,
                                     SpreadOptions{.prefix = config_.prefix, .node = store_->node(), .seed = seed_});
  service.load_reported = [this](std::optional<double> load) { spread_->load_reported(load); };
  spread_->start();
  recovery_ = std::make_unique<QuotaRecovery>(store_->caller(), quotas,
                                              QuotaRecovery::Options{.prefix = config_.prefix, .node = store_->node()});
  if (store_->is_up()) recovery_->step();
  engine::Engine& engine = *service.engine;
  recovering_ = std::make_unique<base::Repeating>(kRecoverEvery, [this, &engine] {
    // What nodes have admitted while Redis was away is in the ledger, too: it must be made up for before what is
    // missing is counted, or it would be charged twice.
    if (store_->up_for() >= kOthersMakeUp && engine.cells().arrears().size() == 0) recovery_->step();
  });
  store_->start([this, &engine] { tick(engine); });
}

void Membership::tick(engine::Engine& engine) {
  if (store_->is_up() && engine.cells().arrears().size() > 0) engine.cells().make_up();
  store_->stood_in(engine.cells().stand_ins());
  const double share =
      config_.local_percent > 0 ? config_.local_percent / 100.0 : 1.0 / static_cast<double>(spread_->nodes());
  if (share != local_share_) engine.controls().set_local_share(local_share_ = share);
}

void Membership::leave() {
  if (std::exchange(left_, true)) return;
  if (recovery_ != nullptr) recovery_->end();
  recovering_.reset();
  store_->end_ticks();  // which ask spread_ how many nodes there are
  spread_.reset();
  store_->stop();
}

}  // namespace headgate::cluster

// The master is whom the sentinels name. They are asked in turn: once a second while all is well, and more often while
// the master cannot be reached; the node they name must itself say that it is the master.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

#include "store/redis/topology.h"

namespace headgate::store::redis {
namespace {

using std::chrono::milliseconds;

constexpr Nanos kAskEvery = std::chrono::seconds{1};
constexpr Nanos kAskEveryWhileDown = milliseconds{100};

// The master's address; nothing: that is none.
std::optional<Endpoint> address_in(const Reply& reply) {
  if (reply.size() != 2 || !reply[0].is_text() || !reply[1].is_text()) return std::nullopt;
  Endpoint endpoint;
  endpoint.host = reply[0].text();
  const std::string_view port = reply[1].text();
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (problem != std::errc{} || end != port.data() + port.size() || endpoint.port == 0) return std::nullopt;
  if (endpoint.host.empty() || endpoint.host.size() > 253) return std::nullopt;
  return endpoint;
}

class SentinelTopology final : public Topology, public Connection::Owner {
 public:
  explicit SentinelTopology(Core& core);
  ~SentinelTopology() override;

  [[nodiscard]] State state() const override;
  [[nodiscard]] std::string why() const override { return master_ != nullptr ? master_->why() : why_; }
  Nanos tick(Nanos now) override;
  void on_change(Node& node) override;
  void on_stale(Node& /*node*/) override { ask_soon(); }

 private:
  // A sentinel, and what calls to it are told apart by.
  struct Sentinel final : public Carrier {
    explicit Sentinel(std::string address) : address_(std::move(address)) {}
    [[nodiscard]] const std::string& name() const noexcept override { return address_; }
    void on_late() override {}

    std::unique_ptr<Connection> connection;

   private:
    std::string address_;
  };

  [[nodiscard]] Node* node_for(std::uint16_t /*slot*/) override { return master_; }
  void on_ready(Connection& connection) override;
  void on_lost(Connection& connection, std::string_view kind, const Error& why,
               std::span<Request* const> requests) override;
  void on_reply(Connection& connection, Request& request, const redisReply& reply) override;

  [[nodiscard]] Sentinel& current() noexcept { return *sentinels_[current_]; }
  void ask(Nanos now);
  void query();
  void answered(const Sentinel& sentinel, const Result<Reply>& reply);
  void named(const Endpoint& endpoint);
  void in_vain(const std::string& why);
  void next_sentinel();
  void ask_soon();

  const Connection::Rules rules_;
  std::vector<std::unique_ptr<Sentinel>> sentinels_;
  std::size_t current_ = 0;  // whom we ask
  std::size_t vain_ = 0;     // sentinels in a row that did not name a master
  bool asking_ = false;
  bool tried_ = false;  // all were asked in vain
  Nanos asked_at_{0};
  Nanos ask_at_{0};
  Node* master_ = nullptr;
  std::string why_;
};

Greeting greeting_of(const Options& options) {
  if (options.sentinel_password) return {options.sentinel_user, *options.sentinel_password, 0, false, false};
  return {options.url.user, options.url.password, 0, false, true};
}

SentinelTopology::SentinelTopology(Core& core) : Topology(core), rules_(core.rules(greeting_of(core.options))) {
  for (const Endpoint& endpoint : core.options.url.endpoints) {
    Sentinel& sentinel = *sentinels_.emplace_back(std::make_unique<Sentinel>(text_of(endpoint)));
    sentinel.connection = std::make_unique<Connection>(core.loop, *this, endpoint, rules_);
  }
  why_ = fmt::format("redis: no sentinel has named the master \"{}\" yet", core.options.url.master);
}

SentinelTopology::~SentinelTopology() {
  asking_ = false;
  for (const auto& sentinel : sentinels_) {
    for (Request* const request : sentinel->connection->close()) {
      core_.requests.answer(*request, Error{ErrorCode::kIo, "redis: the client was stopped", true});
    }
  }
}

State SentinelTopology::state() const {
  if (master_ == nullptr) return tried_ ? State::kDown : State::kStarting;
  if (master_->usable()) return State::kUp;
  return master_->takes_calls() && !tried_ ? State::kStarting : State::kDown;
}

Nanos SentinelTopology::tick(Nanos now) {
  Nanos due = Topology::tick(now);
  if (!asking_ && now >= ask_at_) ask(now);
  for (const auto& sentinel : sentinels_) {
    due = std::min(due, sentinel->connection->tick(now));
    if (sentinel->connection->ready()) sentinel->connection->flush();
  }
  return asking_ ? due : std::min(due, ask_at_);
}

void SentinelTopology::ask(Nanos now) {
  asking_ = true;
  asked_at_ = now;
  Connection& connection = *current().connection;
  if (connection.ready()) return query();
  if (connection.closed()) connection.open();
}

void SentinelTopology::query() {
  Command command;
  const std::array<std::string_view, 3> words = {"SENTINEL", "get-master-addr-by-name", core_.options.url.master};
  append_words(words, command.wire);
  Sentinel& sentinel = current();
  auto done = [this, &sentinel](const Result<Reply>& reply) { answered(sentinel, reply); };
  Request& request = core_.requests.add_own(std::move(command), std::move(done), core_.patience);
  sentinel.connection->send(request, sentinel);
  sentinel.connection->flush();
}

void SentinelTopology::on_ready(Connection& connection) {
  if (asking_ && &connection == current().connection.get()) query();
}

void SentinelTopology::on_lost(Connection& connection, std::string_view kind, const Error& why,
                               std::span<Request* const> requests) {
  if (!kind.empty()) core_.report(kind, why.message);
  const bool was_asked = asking_ && &connection == current().connection.get();
  for (Request* const request : requests) core_.requests.answer(*request, why);
  // If there was a request, its answer has said so.
  if (was_asked && requests.empty()) in_vain(why.message);
}

void SentinelTopology::on_reply(Connection& /*connection*/, Request& request, const redisReply& reply) {
  if (reply.type != REDIS_REPLY_ERROR) return core_.requests.answer(request, Reply(&reply));
  core_.requests.answer(request, error_of({reply.str, reply.len}));
}

void SentinelTopology::answered(const Sentinel& sentinel, const Result<Reply>& reply) {
  if (&sentinel != &current() || !asking_) return;
  if (!reply) {
    const std::string text = fmt::format("sentinel {}: {}", sentinel.name(), reply.error().message);
    core_.report("SENTINEL", text);
    return in_vain(text);
  }
  if (const std::optional<Endpoint> endpoint = address_in(*reply)) return named(*endpoint);
  const std::string why = reply->is_nil() || (reply->is_array() && reply->size() == 0)
                              ? fmt::format("knows no master \"{}\"", core_.options.url.master)
                              : std::string("answered with something that is no address");
  const std::string text = fmt::format("sentinel {}: {}", sentinel.name(), why);
  core_.report("SENTINEL", text);
  in_vain(text);
}

void SentinelTopology::named(const Endpoint& endpoint) {
  asking_ = false;
  vain_ = 0;
  tried_ = false;
  if (master_ == nullptr || master_->endpoint() != endpoint) {
    Node* const old = master_;
    master_ = &add(endpoint, true);
    if (old != nullptr) retire(*old);
  }
  if (master_->takes_calls()) {
    ask_at_ = asked_at_ + kAskEvery;
    return;
  }
  // This sentinel may be the one that has not heard yet.
  next_sentinel();
  ask_at_ = asked_at_ + kAskEveryWhileDown;
}

void SentinelTopology::in_vain(const std::string& why) {
  asking_ = false;
  ++vain_;
  why_ = why;
  next_sentinel();
  if (vain_ < sentinels_.size()) {
    ask_at_ = core_.loop.now();
    return;
  }
  vain_ = 0;
  tried_ = true;
  ask_at_ = core_.loop.now() + kAskEveryWhileDown;
}

void SentinelTopology::next_sentinel() {
  if (sentinels_.size() > 1) static_cast<void>(current().connection->close());
  current_ = (current_ + 1) % sentinels_.size();
}

void SentinelTopology::ask_soon() {
  ask_at_ = std::min(ask_at_, std::max(core_.loop.now(), asked_at_ + kAskEveryWhileDown));
}

void SentinelTopology::on_change(Node& node) {
  if (&node == master_ && !node.usable()) ask_soon();
}

}  // namespace

std::unique_ptr<Topology> make_sentinel_topology(Core& core) { return std::make_unique<SentinelTopology>(core); }

}  // namespace headgate::store::redis

#include "store/redis/topology.h"

#include <fmt/format.h>

#include <algorithm>

namespace headgate::store::redis {
namespace {

// One server, always the same.
class OneServer final : public Topology {
 public:
  explicit OneServer(Core& core) : Topology(core), node_(add(core.options.url.endpoints.front(), true)) {}

  [[nodiscard]] State state() const override {
    if (node_.usable()) return State::kUp;
    return node_.takes_calls() ? State::kStarting : State::kDown;
  }
  [[nodiscard]] std::string why() const override { return node_.why(); }
  void on_change(Node& /*node*/) override {}
  void on_stale(Node& /*node*/) override {}  // it connects anew, which looks its name up again

 private:
  [[nodiscard]] Node* node_for(std::uint16_t /*slot*/) override { return &node_; }

  Node& node_;
};

}  // namespace

std::unique_ptr<Topology> Topology::make(Core& core) {
  switch (core.options.url.kind) {
    case Url::Kind::kSentinel: return make_sentinel_topology(core);
    case Url::Kind::kCluster: return make_cluster_topology(core);
    case Url::Kind::kStandalone: break;
  }
  return std::make_unique<OneServer>(core);
}

void Topology::route(Request& request) {
  if (Node* const node = node_for(request.command.slot); node != nullptr) return node->send(request);
  core_.requests.answer(request, Error{ErrorCode::kIo, why(), true});
}

Nanos Topology::clock_offset() const noexcept {
  Nanos farthest{0};
  for (const auto& node : nodes_) {
    if (!node->usable()) continue;
    if (std::chrono::abs(node->clock_offset()) > std::chrono::abs(farthest)) farthest = node->clock_offset();
  }
  return farthest;
}

void Topology::flush() {
  for (const auto& node : nodes_) node->flush();
  for (const auto& node : retired_) node->flush();
}

Nanos Topology::tick(Nanos now) {
  Nanos due = kNotDue;
  for (const auto& node : nodes_) due = std::min(due, node->tick(now));
  std::erase_if(retired_, [](const auto& node) { return node->idle(); });
  for (const auto& node : retired_) due = std::min(due, node->tick(now));
  return due;
}

void Topology::on_redirect(Node& node, Request& request, const Redirect& /*redirect*/, std::string_view text) {
  Error error = error_of(text);
  error.message += " (this server is part of a cluster: the URL must begin with redis+cluster:// or rediss+cluster://)";
  core_.report(word_of(text), fmt::format("redis {}: {}", node.name(), error.message));
  core_.requests.answer(request, error);
}

Node& Topology::add(const Endpoint& endpoint, bool want_master) {
  const Url& url = core_.options.url;
  Greeting greeting{url.user, url.password, url.database, want_master, false};
  return *nodes_.emplace_back(std::make_unique<Node>(core_, *this, endpoint, std::move(greeting)));
}

void Topology::retire(Node& node) {
  node.retire();
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& each) { return each.get() == &node; });
  retired_.push_back(std::move(*found));
  nodes_.erase(found);
}

void Topology::drop_nodes() {
  nodes_.clear();
  retired_.clear();
}

}  // namespace headgate::store::redis

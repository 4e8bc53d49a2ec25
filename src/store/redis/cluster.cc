// A cluster: each command goes to the master of its slot. The map of slots comes from any of its servers, and again
// whenever one of them says that a slot has moved, or is lost.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "store/redis/topology.h"

namespace headgate::store::redis {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSlots = 16384;
constexpr std::size_t kMaxNodes = 1024;
constexpr int kMaxHops = 5;
constexpr Nanos kLookEvery = std::chrono::seconds{10};  // also at a map that nothing speaks against
constexpr Nanos kLookAgain = milliseconds{100};         // at the earliest

struct SlotRange {
  std::size_t first = 0;
  std::size_t last = 0;
  Endpoint master;
};

// One entry of CLUSTER SLOTS: first slot, last slot, the master, its replicas. Where it names no host, it is that of
// the server that was asked.
std::optional<SlotRange> range_in(const Reply& entry, const std::string& host) {
  if (entry.size() < 3 || !entry[0].is_integer() || !entry[1].is_integer() || entry[2].size() < 2) return std::nullopt;
  const std::int64_t first = entry[0].integer();
  const std::int64_t last = entry[1].integer();
  const Reply master = entry[2];
  if (first < 0 || last < first || last >= static_cast<std::int64_t>(kSlots)) return std::nullopt;
  if (!master[1].is_integer() || master[1].integer() < 1 || master[1].integer() > 65535) return std::nullopt;
  SlotRange range{static_cast<std::size_t>(first), static_cast<std::size_t>(last), {}};
  if (master[0].is_text()) range.master.host = master[0].text();
  if (range.master.host.empty() || range.master.host == "?") range.master.host = host;
  range.master.port = static_cast<std::uint16_t>(master[1].integer());
  return range.master.host.size() > 253 ? std::nullopt : std::optional(range);
}

class ClusterTopology final : public Topology {
 public:
  explicit ClusterTopology(Core& core) : Topology(core), why_("redis: the cluster's map is not known yet") {}
  ~ClusterTopology() override {
    looking_ = false;
    drop_nodes();
  }

  [[nodiscard]] State state() const override;
  [[nodiscard]] std::string why() const override;
  Nanos tick(Nanos now) override;
  void on_change(Node& node) override;
  void on_stale(Node& /*node*/) override { look_soon(); }
  void on_redirect(Node& node, Request& request, const Redirect& redirect, std::string_view text) override;

 private:
  [[nodiscard]] Node* node_for(std::uint16_t slot) override;
  [[nodiscard]] Node* find(const Endpoint& endpoint) const noexcept;
  [[nodiscard]] Node* any_usable() noexcept;
  void look(Nanos now);
  void look_soon();
  void seen(const std::string& host, const Result<Reply>& reply);
  void in_vain(const std::string& why);
  [[nodiscard]] bool adopt(const std::vector<SlotRange>& ranges);

  std::array<Node*, kSlots> masters_{};  // null: no node has the slot
  std::size_t covered_ = 0;              // slots that have a node, by the last map
  std::size_t turn_ = 0;                 // whom commands without a slot go to
  bool looking_ = false;
  bool tried_ = false;  // looked in vain
  Nanos looked_at_{0};
  Nanos look_at_{0};
  std::string why_;
};

State ClusterTopology::state() const {
  const auto usable = [](const auto& node) { return node->usable(); };
  if (covered_ == 0) return tried_ ? State::kDown : State::kStarting;
  if (covered_ == kSlots && std::all_of(nodes_.begin(), nodes_.end(), usable)) return State::kUp;
  if (std::any_of(nodes_.begin(), nodes_.end(), usable)) return tried_ ? State::kDegraded : State::kStarting;
  return tried_ ? State::kDown : State::kStarting;
}

std::string ClusterTopology::why() const {
  if (covered_ == 0) return why_;
  for (const auto& node : nodes_) {
    if (!node->usable()) return node->why();
  }
  if (covered_ < kSlots) return fmt::format("redis: {} slots of the cluster have no server", kSlots - covered_);
  return why_;
}

Node* ClusterTopology::find(const Endpoint& endpoint) const noexcept {
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) { return node->endpoint() == endpoint; });
  return found != nodes_.end() ? found->get() : nullptr;
}

Node* ClusterTopology::any_usable() noexcept {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = *nodes_[++turn_ % nodes_.size()];
    if (node.usable()) return &node;
  }
  return nullptr;
}

Node* ClusterTopology::node_for(std::uint16_t slot) {
  if (slot == kAnySlot) return any_usable();
  Node* const node = slot < kSlots ? masters_[slot] : nullptr;
  if (node == nullptr && covered_ > 0) why_ = fmt::format("redis: slot {} of the cluster has no server", slot);
  return node;
}

Nanos ClusterTopology::tick(Nanos now) {
  if (!looking_ && now >= look_at_) look(now);
  const Nanos due = Topology::tick(now);
  return looking_ ? due : std::min(due, look_at_);
}

void ClusterTopology::look(Nanos now) {
  Node* const node = any_usable();
  if (node == nullptr) {
    // No known node is reachable: start again with those of the URL.
    for (const Endpoint& seed : core_.options.url.endpoints) {
      if (find(seed) == nullptr && nodes_.size() < kMaxNodes) add(seed, false);
    }
    look_at_ = now + kLookAgain;
    return;
  }
  looking_ = true;
  looked_at_ = now;
  Command command;
  append_words(std::array<std::string_view, 2>{"CLUSTER", "SLOTS"}, command.wire);
  auto done = [this, host = node->endpoint().host](const Result<Reply>& reply) { seen(host, reply); };
  node->send(core_.requests.add_own(std::move(command), std::move(done), core_.patience));
}

void ClusterTopology::look_soon() {
  look_at_ = std::min(look_at_, std::max(core_.loop.now(), looked_at_ + kLookAgain));
}

void ClusterTopology::seen(const std::string& host, const Result<Reply>& reply) {
  if (!looking_) return;
  looking_ = false;
  look_at_ = core_.loop.now() + kLookAgain;
  if (!reply) return in_vain(reply.error().message);
  std::vector<SlotRange> ranges;
  for (std::size_t i = 0; i < reply->size(); ++i) {
    std::optional<SlotRange> range = range_in((*reply)[i], host);
    if (!range) return in_vain("the cluster's map cannot be read");
    ranges.push_back(std::move(*range));
  }
  if (ranges.empty()) return in_vain("redis: no server of the cluster has any slot");
  if (!adopt(ranges)) return in_vain(fmt::format("a cluster of more than {} servers", kMaxNodes));
  if (state() == State::kUp) look_at_ = core_.loop.now() + kLookEvery;
}

void ClusterTopology::in_vain(const std::string& why) {
  tried_ = true;
  why_ = why;
  core_.report("CLUSTER", why);
}

bool ClusterTopology::adopt(const std::vector<SlotRange>& ranges) {
  std::vector<Node*> kept;
  masters_.fill(nullptr);
  for (const SlotRange& range : ranges) {
    Node* node = find(range.master);
    if (node == nullptr && nodes_.size() < 2 * kMaxNodes) node = &add(range.master, false);
    if (node == nullptr) continue;
    kept.push_back(node);
    std::fill(masters_.begin() + static_cast<std::ptrdiff_t>(range.first),
              masters_.begin() + static_cast<std::ptrdiff_t>(range.last) + 1, node);
  }
  covered_ = kSlots - static_cast<std::size_t>(std::count(masters_.begin(), masters_.end(), nullptr));
  std::vector<Node*> gone;
  for (const auto& node : nodes_) {
    if (std::find(kept.begin(), kept.end(), node.get()) == kept.end()) gone.push_back(node.get());
  }
  for (Node* const node : gone) retire(*node);
  return nodes_.size() <= kMaxNodes;
}

void ClusterTopology::on_change(Node& node) {
  if (node.usable()) return;
  tried_ = true;
  if (covered_ == 0) why_ = node.why();
  look_soon();
}

void ClusterTopology::on_redirect(Node& node, Request& request, const Redirect& redirect, std::string_view text) {
  const std::string was = fmt::format("redis {}: {}", node.name(), text);
  if (++request.hops > kMaxHops) {
    const Error loop{ErrorCode::kIo, fmt::format("MOVED loop: sent on {} times, at last by {}", kMaxHops, was), true};
    core_.report("MOVED loop", loop.message);
    return core_.requests.answer(request, loop);
  }
  Node* target = find(redirect.to);
  if (target == nullptr && nodes_.size() < kMaxNodes) target = &add(redirect.to, false);
  if (target == nullptr) {
    return core_.requests.answer(request, Error{ErrorCode::kIo, was + " (too many servers are known already)", true});
  }
  if (!redirect.ask) {
    masters_[redirect.slot] = target;
    look_soon();
  }
  request.script_told = false;
  request.sent_as = 0;
  request.asking = redirect.ask;
  target->send(request);
}

}  // namespace

std::unique_ptr<Topology> make_cluster_topology(Core& core) { return std::make_unique<ClusterTopology>(core); }

}  // namespace headgate::store::redis

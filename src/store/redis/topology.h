// Which servers there are and which of them a command goes to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/redis/node.h"

namespace headgate::store::redis {

// On the client's thread.
class Topology : public Node::Router {
 public:
  [[nodiscard]] static std::unique_ptr<Topology> make(Core& core);
  virtual ~Topology() = default;
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // Hands it to a server, or answers it with an Error.
  void route(Request& request);
  [[nodiscard]] virtual State state() const = 0;
  [[nodiscard]] virtual std::string why() const = 0;  // it is not up
  // The clock that is farthest from ours.
  [[nodiscard]] Nanos clock_offset() const noexcept;

  void flush();
  // Does what is due; returns when to be called again.
  virtual Nanos tick(Nanos now);

  void on_redirect(Node& node, Request& request, const Redirect& redirect, std::string_view text) override;

 protected:
  explicit Topology(Core& core) noexcept : core_(core) {}

  // Null: none is known; why() says why.
  [[nodiscard]] virtual Node* node_for(std::uint16_t slot) = 0;

  Node& add(const Endpoint& endpoint, bool want_master);
  // It is asked nothing more, and goes when it owes nothing more.
  void retire(Node& node);
  // For destructors of classes that send requests of their own to nodes: all answers come while this runs.
  void drop_nodes();

  Core& core_;
  std::vector<std::unique_ptr<Node>> nodes_;

 private:
  std::vector<std::unique_ptr<Node>> retired_;
};

[[nodiscard]] std::unique_ptr<Topology> make_sentinel_topology(Core& core);
[[nodiscard]] std::unique_ptr<Topology> make_cluster_topology(Core& core);

}  // namespace headgate::store::redis

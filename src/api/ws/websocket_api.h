// Checks over a WebSocket (GET /v1/ws), and what is told to agents that are connected.
//
//   → {"type": "identify", "agent": "A", "token": "..."}          ← {"type": "identified", "agent": "A"}
//   → {"type": "CREATE_COMPONENT", "id": 1, ...}                  ← {"type": "decision", "id": 1, "allowed": true, ...}
//   → {"type": "check", "operation": "settle", "id": 2, ...}      ← the same; for operations that are named like a type
//   → {"type": "settle", "id": 3, "lease": "...", "cost": 5}      ← {"type": "settled", "id": 3, ...}; release, renew
//   too
//
// Every message has one answer with its id: a decision; for a denial, in its place, rate_limited with the same fields;
// or an error. A rate_limit_warning may come before a decision. Checks that wait for room are answered when they have
// it, so answers need not come in the order of the questions.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/websocket.h"
#include "service/service.h"

namespace headgate::api {

// The connections of agents, so that escalations and alerts reach those whom they are addressed to, or are about.
//
// Safe for concurrent use.
class AgentRegistry final : public observe::NoticeSink {
 public:
  // Connections of one agent that are told; further ones are not.
  static constexpr std::size_t kMostPerAgent = 64;

  // Returns what leave() takes; 0: the agent has enough of them.
  std::uint64_t join(const std::string& agent, std::shared_ptr<net::Link> link);
  void leave(const std::string& agent, std::uint64_t number) noexcept;
  [[nodiscard]] std::size_t size() const;

  void on_notice(const observe::Notice& notice) override;

 private:
  struct Member {
    std::uint64_t number = 0;
    std::shared_ptr<net::Link> link;
  };
  void send(const std::string& agent, const std::shared_ptr<const std::string>& message);

  mutable std::mutex mutex_;
  std::unordered_multimap<std::string, Member> members_;
  std::uint64_t last_ = 0;
};

// Answers the request for an upgrade, which needs no token yet: the first message may bring it. One that is given must
// be good all the same, and Host and Origin must be right. Where a token is required, the agent must be identified
// within the given time. The service outlives all connections.
[[nodiscard]] std::function<void(const net::HttpRequest&, net::HttpReply&, const service::Caller&)>
make_websocket_upgrade(const service::Service& service, std::shared_ptr<AgentRegistry> registry,
                       Nanos identify_within = std::chrono::seconds{10});

// The handler of one connection; for tests.
[[nodiscard]] std::unique_ptr<net::WebSocketHandler> make_websocket_handler(const service::Service& service,
                                                                            std::shared_ptr<AgentRegistry> registry,
                                                                            const service::Caller& caller,
                                                                            const net::Peer& peer);

}  // namespace headgate::api

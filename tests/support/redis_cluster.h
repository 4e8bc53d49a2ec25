// A cluster of real servers, each with its share of the slots.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/redis_server.h"

namespace headgate::test {

class RedisCluster {
 public:
  explicit RedisCluster(std::size_t size, const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> all = {"--cluster-enabled", "yes", "--cluster-node-timeout", "1000"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    for (std::size_t i = 0; i < size; ++i) servers_.push_back(std::make_unique<RedisServer>(all));
    for (std::size_t i = 0; i < size; ++i) {
      server(i).ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
      server(i).ask({"CLUSTER", "ADDSLOTSRANGE", std::to_string(first_slot(i)), std::to_string(first_slot(i + 1) - 1)});
      if (i > 0) meet(i);
    }
    if (!eventually([this] { return agrees(); })) throw std::runtime_error("the cluster does not form");
  }

  [[nodiscard]] RedisServer& server(std::size_t i) { return *servers_.at(i); }
  [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }
  [[nodiscard]] std::size_t first_slot(std::size_t i) const noexcept { return i * 16384 / servers_.size(); }
  [[nodiscard]] std::string url() { return "redis+cluster://" + server(0).address(); }
  [[nodiscard]] std::string id(std::size_t i) { return server(i).ask({"CLUSTER", "MYID"}); }

  void meet(std::size_t i) { server(i).ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(server(0).port())}); }
  // Whether all of them know all of them and all slots.
  [[nodiscard]] bool agrees() {
    for (const auto& each : servers_) {
      const std::string info = each->ask({"CLUSTER", "INFO"});
      if (info.find("cluster_state:ok") == std::string::npos) return false;
      if (info.find("cluster_known_nodes:" + std::to_string(servers_.size())) == std::string::npos) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<RedisServer>> servers_;
};

}  // namespace headgate::test

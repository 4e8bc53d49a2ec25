// Carries commands to Redis: one server, whichever server its sentinels name, or a cluster.
//
// All concurrent calls share few connections, each of them a pipeline, on one thread of the client's own. Connections
// come back by themselves. Nothing waits for longer than the deadline: while no server is reachable, calls fail at
// once.
#pragma once

#include <memory>
#include <string>

#include "store/redis/command.h"
#include "store/redis/options.h"

namespace headgate::store::redis {

// Safe for concurrent use.
class Client final : public Caller {
 public:
  // Begins to connect, and returns without waiting for that. The observer may be null. An Error: the options are wrong.
  [[nodiscard]] static Result<std::unique_ptr<Client>> make(const Options& options, Observer* observer);
  // What is outstanding is answered with an Error. REQUIRES: not called from the client's thread.
  ~Client() override;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // An error in the wire that the command was made of breaks the connection for everybody, so use append_words().
  void call(Command command, Done done) override;
  [[nodiscard]] Nanos deadline() const noexcept override;

  [[nodiscard]] State state() const noexcept;
  [[nodiscard]] std::string why() const;                     // it is not up; empty if it is
  [[nodiscard]] Nanos clock_offset_approx() const noexcept;  // the wall clock farthest from ours, minus ours
  // Whether it was up within that time.
  [[nodiscard]] bool wait_until_up(Nanos at_most) const;

 private:
  class Engine;
  explicit Client(std::unique_ptr<Engine> engine) noexcept;

  std::unique_ptr<Engine> engine_;
};

}  // namespace headgate::store::redis

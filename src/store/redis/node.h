// One Redis server as the client sees it: its connections, whether it is worth asking, and its clock.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "store/redis/breaker.h"
#include "store/redis/connection.h"
#include "store/redis/core.h"

namespace headgate::store::redis {

// A server of a cluster says that a slot is somewhere else.
struct Redirect {
  bool ask = false;  // only this once
  std::uint16_t slot = 0;
  Endpoint to;
};
// "MOVED 3999 127.0.0.1:6381". Where no host is said, it is `host`.
[[nodiscard]] std::optional<Redirect> parse_redirect(std::string_view text, const std::string& host);

class Node final : public Connection::Owner, public Carrier {
 public:
  class Router {
   public:
    virtual void on_change(Node& node) = 0;  // usable() has changed, or it could not be reached
    virtual void on_stale(Node& node) = 0;   // it is not what it was taken for
    virtual void on_redirect(Node& node, Request& request, const Redirect& redirect, std::string_view text) = 0;

   protected:
    ~Router() = default;
  };

  Node(Core& core, Router& router, Endpoint endpoint, Greeting greeting);
  ~Node();  // whatever it still carries is answered with an Error
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] const Endpoint& endpoint() const noexcept { return endpoint_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] bool usable() const noexcept { return ready_ > 0 && !breaker_.is_open(); }
  // Usable, or about to be: not tried in vain yet.
  [[nodiscard]] bool takes_calls() const noexcept { return usable() || (ready_ == 0 && !tried_); }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }  // it is not usable
  [[nodiscard]] Nanos clock_offset() const noexcept { return clock_offset_; }

  // Answered at once with an Error where it takes no calls.
  void send(Request& request);
  void flush();
  Nanos tick(Nanos now);
  // Connects anew after a pause; what is under way is answered with an Error.
  void reconnect(const std::string& why);
  // No more connections are opened; idle() tells when it can go.
  void retire() noexcept { retired_ = true; }
  [[nodiscard]] bool retired() const noexcept { return retired_; }
  [[nodiscard]] bool idle() const noexcept;

  void on_ready(Connection& connection) override;
  void on_lost(Connection& connection, std::string_view kind, const Error& why,
               std::span<Request* const> requests) override;
  void on_reply(Connection& connection, Request& request, const redisReply& reply) override;
  void on_late() override;

 private:
  struct Line {
    std::unique_ptr<Connection> connection;
    Pause pause;
    Nanos open_at{0};
    Nanos ready_since{0};
    bool was_ready = false;
  };

  void lost(Line& line, const Error& why, std::span<Request* const> requests);
  void drop_parked(const Error& why);
  void refuse(Connection& connection, Request& request, std::string_view text);
  void open_circuit(const std::string& why);
  bool close_circuit(Nanos now) noexcept;  // true: it was open
  void probe(Nanos now);
  void ask_time(Nanos now);
  void ask(std::initializer_list<std::string_view> words, Caller::Done done);
  Nanos tick_lines(Nanos now);
  Nanos tick_circuit(Nanos now);
  [[nodiscard]] Line& line_of(const Connection& connection) noexcept;
  [[nodiscard]] Connection* least_loaded() noexcept;

  Core& core_;
  Router& router_;
  const Endpoint endpoint_;
  const std::string name_;
  const Connection::Rules rules_;
  std::vector<Line> lines_;
  std::deque<Owed> parked_;  // until the first connection is ready, or is not to be had
  std::size_t ready_ = 0;    // connections
  bool tried_ = false;       // there was a connection once, or an attempt failed
  bool retired_ = false;
  Breaker breaker_;
  int refused_ = 0;          // calls of scripts in a row, by a server that answers
  std::string refused_key_;  // of one of them, if that opened the circuit: its slot is this server's
  std::string why_;
  Nanos clock_at_{0};  // when to look at its clock again
  Nanos clock_offset_{0};
};

}  // namespace headgate::store::redis

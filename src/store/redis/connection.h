// One connection to one server: it is opened and greeted, carries commands in a pipeline, and is closed when the server
// breaks the rules. Its owner opens it again.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "store/redis/loop.h"
#include "store/redis/reader.h"
#include "store/redis/request.h"
#include "store/redis/stream.h"

namespace headgate::store::redis {

// What is said to a server before anything else.
struct Greeting {
  std::string user;
  std::string password;
  unsigned database = 0;
  bool want_master = false;      // it must say that it is no replica
  bool may_be_unlocked = false;  // a server that knows no password is fine too
};

class Connection final : public Watcher {
 public:
  struct Rules {
    Nanos connect_timeout;
    Nanos longest_debt;  // a server that owes a reply for longer is left
    std::size_t max_owed;
    std::size_t max_reply_bytes;
    std::shared_ptr<const TlsRules> tls;  // null: without
    Greeting greeting;
  };
  class Owner {
   public:
    virtual void on_ready(Connection& connection) = 0;
    // It is closed. `requests` are those that it had and that were not answered. `kind` names a problem; empty: it is
    // an ordinary loss.
    virtual void on_lost(Connection& connection, std::string_view kind, const Error& why,
                         std::span<Request* const> requests) = 0;
    // To be answered, or sent again.
    virtual void on_reply(Connection& connection, Request& request, const redisReply& reply) = 0;

   protected:
    ~Owner() = default;
  };

  Connection(Loop& loop, Owner& owner, Endpoint endpoint, const Rules& rules);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void open();  // REQUIRES: it is closed
  // Without a callback; returns the requests it had.
  [[nodiscard]] std::vector<Request*> close();
  [[nodiscard]] bool closed() const noexcept { return phase_ == Phase::kClosed; }
  [[nodiscard]] bool ready() const noexcept { return phase_ == Phase::kReady; }

  // REQUIRES: ready(). They leave with the next flush(), in this order.
  void send(Request& request, Carrier& carrier);
  // Tells the server the script first, unless that has been done since the request was sent.
  void send_with_script(Request& request, Carrier& carrier);
  void flush();

  [[nodiscard]] std::size_t load() const noexcept { return owed_.size() + unsent_.size(); }
  // Since when it has owed the next reply; kNotDue: nothing is owed.
  [[nodiscard]] Nanos owes_since() const noexcept { return owed_.empty() ? kNotDue : owed_.front().since; }
  // Does what is due; returns when to be called again.
  Nanos tick(Nanos now);

  void on_events(std::uint32_t events) override;

 private:
  enum class Phase : std::uint8_t { kClosed, kResolving, kConnecting, kShaking, kGreeting, kReady };
  enum class Greeted : std::uint8_t { kAuth, kSelect, kName, kRole };

  void next_address();
  void connected();
  void shake();
  void greet();
  void on_greeting(const redisReply& reply);
  void read();
  void deliver(const redisReply& reply);
  void say(std::span<const std::string_view> words);
  void encode_next();
  void want(std::uint32_t events);
  void lose(std::string_view kind, const std::string& why);
  void lose_waiting();
  void lose_stream();
  void lose_at_greeting(const redisReply& reply);

  Loop& loop_;
  Owner& owner_;
  const Endpoint endpoint_;
  const std::string name_;
  const Rules& rules_;
  Phase phase_ = Phase::kClosed;
  Nanos opened_{0};
  std::shared_ptr<Lookup> lookup_;
  std::vector<SocketAddress> addresses_;  // not tried yet, the next one last
  Stream stream_;
  ReplyReader reader_;
  std::uint32_t events_ = 0;
  std::deque<Greeted> greetings_;  // not answered yet
  std::deque<Owed> unsent_;        // `owed` of their requests points here, until they are encoded
  std::deque<Owed> owed_;          // in the order of replies
  std::string out_;                // encoded, not taken by the socket yet
  std::size_t out_sent_ = 0;       // of `out_`
  std::uint64_t numbered_ = 0;     // commands so far
  absl::flat_hash_map<const Script*, std::uint64_t> scripts_;  // number of the last SCRIPT LOAD of each
};

}  // namespace headgate::store::redis

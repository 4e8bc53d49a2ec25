// One thread of the load generator: an epoll loop over its connections. Used by its own thread alone, except for
// answered() and measured(), which may be read from anywhere; the rest once run() has returned.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench/bench_load.h"

namespace headgate::cli {

[[nodiscard]] Nanos bench_now() noexcept;
// A socket that connects, or -1 and errno.
[[nodiscard]] int open_socket(const LoadTarget& target);
// What an errno means.
[[nodiscard]] std::string why(int error);

class BenchWorker {
 public:
  BenchWorker(const LoadPlan& plan, const BenchRequest& request, int number, int workers, Nanos start);
  ~BenchWorker();
  BenchWorker(const BenchWorker&) = delete;
  BenchWorker& operator=(const BenchWorker&) = delete;

  void run(const std::atomic<bool>& stop);

  [[nodiscard]] std::uint64_t answered() const noexcept { return answered_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t measured() const noexcept { return measured_.load(std::memory_order_relaxed); }
  [[nodiscard]] const LoadResult& result() const noexcept { return result_; }
  [[nodiscard]] const std::string& fatal() const noexcept { return fatal_; }  // why it could not go on; or empty
  [[nodiscard]] Nanos last_answer() const noexcept { return last_answer_; }

 private:
  struct Connection {
    int fd = -1;
    bool connected = false;
    bool greeted = false;
    bool answered = false;     // anything, since it connected
    bool wants_write = false;  // as registered with epoll
    bool dirty = false;        // has something to flush
    Nanos retry_at{0};         // when to connect again
    std::string out;
    std::size_t out_at = 0;
    std::vector<char> in;
    std::size_t in_size = 0;
    std::vector<Nanos> due;  // ring: since when each unanswered request has been due
    std::size_t first = 0;
    std::size_t unanswered = 0;
  };

  void connect(Connection& connection);
  void reconnect(Nanos now);
  void drop(Connection& connection, std::string_view why, Nanos now);
  void on_event(Connection& connection, std::uint32_t events);
  void on_connected(Connection& connection);
  void receive(Connection& connection);
  void take(Connection& connection, const BenchReply& reply, Nanos now);
  void flush(Connection& connection);
  void fill(Connection& connection, Nanos now);
  void dispatch(Nanos now);
  void send_one(Connection& connection, Nanos due, Nanos now);
  void lose(Connection& connection, std::string_view why);
  void note_error(std::string_view text);

  [[nodiscard]] bool ready(const Connection& connection) const noexcept {
    return connection.connected && connection.greeted;
  }
  [[nodiscard]] bool open_loop() const noexcept { return plan_.rate > 0; }
  // When the open loop's next request is due.
  [[nodiscard]] Nanos next_due() const noexcept;
  // Whether another request may be made, of what was due at that instant.
  [[nodiscard]] bool may_send(Nanos due) const noexcept;
  [[nodiscard]] bool done(Nanos now) const noexcept;
  [[nodiscard]] Nanos wait_for(Nanos now) const noexcept;
  std::uint32_t random_key() noexcept;

  const LoadPlan& plan_;
  const BenchRequest& request_;
  Nanos warm_;               // from here on it counts
  Nanos end_;                // nothing is made from here on
  std::uint64_t quota_ = 0;  // how many may count; 0: any number
  std::uint64_t counted_ = 0;
  std::uint64_t scheduled_ = 0;  // of the open loop, warm-up included
  double interval_ = 0;          // of the open loop, in nanoseconds
  Nanos first_due_{0};
  std::uint64_t random_;
  int epoll_ = -1;
  std::vector<Connection> connections_;
  std::size_t turn_ = 0;  // where the open loop looks for room next
  std::size_t unanswered_ = 0;
  std::size_t away_ = 0;  // connections that are not there
  Nanos alone_since_{0};  // since when none has been there
  std::vector<Connection*> dirty_;
  std::atomic<std::uint64_t> answered_{0};
  std::atomic<std::uint64_t> measured_{0};
  LoadResult result_;
  std::string fatal_;
  Nanos last_answer_{0};
};

}  // namespace headgate::cli

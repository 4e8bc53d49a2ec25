// One io thread: an epoll set, the listening sockets it accepts from, and the connections that live on it.
//
// Level-triggered, so that a request costs one wait, one read and one write, and nothing is ever re-armed for the usual
// case. Everything but post() and counts() happens on the thread itself.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "net/buffer_budget.h"
#include "net/io.h"
#include "net/mailbox.h"
#include "net/tls.h"

namespace headgate::net {

class Connection;
class Worker;

// Whatever waits in an epoll set.
class Watcher {
 public:
  virtual void ready(std::uint32_t events) = 0;

 protected:
  ~Watcher() = default;
};

// Counted by one thread, read by others.
class Count {
 public:
  void add(std::uint64_t by) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  void subtract(std::uint64_t by) noexcept { add(~by + 1); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// What all threads share.
struct IoCommon {
  explicit IoCommon(const IoOptions& the_options)
      : options(the_options), places(the_options.places), buffers(the_options.max_buffered) {}

  IoOptions options;
  std::vector<Listener> listeners;
  Places places;
  BufferBudget buffers;

  std::mutex tls_mutex;
  std::vector<std::shared_ptr<TlsContext>> tls;  // one for each listener; null: it has none

  std::mutex idle_mutex;
  std::condition_variable idle;  // told by a thread that drains, when its last connection is gone
};

// One listener on one thread.
class Port final : public Watcher {
 public:
  Port(Worker& worker, std::size_t index, base::Descriptor socket) noexcept;
  void open();
  void close();
  void ready(std::uint32_t events) override;
  void resume();  // accepting, if it was paused for want of descriptors

  [[nodiscard]] const Listener& listener() const noexcept;
  struct Counts {
    Count accepted, refused, evicted, timed_out, shed, open, bytes_in, bytes_out;
  };
  Counts counts;

 private:
  bool accept_one();
  [[nodiscard]] bool find_room(const Places::Claim& claim);
  void adopt(base::Descriptor socket, const sockaddr_storage& from, const Places::Claim& claim);

  Worker& worker_;
  const std::size_t index_;
  base::Descriptor socket_;
  bool paused_ = false;
};

using Connections = std::list<std::unique_ptr<Connection>>;

// In what order connections make room for others: the longest there of the first kind first. Those of addresses that
// places are kept for make room for their like only.
enum class Rank : std::uint8_t { kUnknown, kHolding, kAnonymous, kKeptUnknown, kKeptHolding, kKeptAnonymous, kSettled };

class Worker final : private Watcher {
 public:
  static constexpr std::size_t kBuffer = 64 << 10;  // what one read takes at most

  Worker(IoCommon& common, int index);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] bool good() const noexcept { return epoll_ && mailbox_->fd() >= 0; }
  void add_port(std::size_t listener, base::Descriptor socket);
  void start();
  void join();
  void close_ports();  // REQUIRES: the thread does not run, or it is the caller
  // From any thread.
  void begin_drain();
  void halt();
  [[nodiscard]] std::uint64_t connections() const noexcept { return connections_count_.get(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Port>>& ports() const noexcept { return ports_; }

  // On the thread.
  [[nodiscard]] IoCommon& common() const noexcept { return common_; }
  [[nodiscard]] const std::shared_ptr<Mailbox>& mailbox() const noexcept { return mailbox_; }
  [[nodiscard]] char* buffer() noexcept { return buffer_.get(); }
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  bool watch(int fd, std::uint32_t events, Watcher& watcher) noexcept;
  void change(int fd, std::uint32_t events, Watcher& watcher) noexcept;
  void forget(int fd) noexcept;
  void adopt(std::unique_ptr<Connection> connection);
  void advance_later(Connection& connection) { later_.push_back(&connection); }  // after the letters at hand
  void bury(Rank rank, Connections::iterator place) noexcept;                    // destroyed after the events at hand
  void move(Rank from, Rank to, Connections::iterator place) noexcept;
  // Closes a connection of least rank, so that another has its place. False: there is none that has to.
  bool evict_one() noexcept;
  bool evict_kept() noexcept;  // the same among addresses that places are kept for
  // Closes the connection that has held bytes for the longest without proof. False: it is `asker`, or there is none.
  bool evict_holding(const Connection& asker) noexcept;

 private:
  static constexpr int kEventsAtOnce = 256;

  void ready(std::uint32_t events) override;  // the mailbox
  void run();
  void turn(std::array<epoll_event, kEventsAtOnce>& events, Nanos& now);
  void tick(Nanos now);
  void drain();
  void run_letters();
  void empty_graves() noexcept;
  [[nodiscard]] int timeout_ms(Nanos now) const;

  IoCommon& common_;
  const int index_;
  base::Descriptor epoll_;
  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<char[]> buffer_;
  std::vector<std::unique_ptr<Port>> ports_;
  [[nodiscard]] Connections& of(Rank rank) noexcept { return connections_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool evict_first(Rank rank, const Connection* but = nullptr) noexcept;
  [[nodiscard]] bool evict_idle(Rank rank) noexcept;
  [[nodiscard]] bool no_connections() const noexcept;
  template <class Work>
  void for_each(Work work);

  std::array<Connections, 7> connections_;  // by rank, each in the order in which they came to it
  Connections graves_;
  std::vector<Connection*> visited_;  // by for_each()
  std::vector<Connection*> later_;
  Count connections_count_;
  Nanos next_tick_{0};
  std::uint64_t ticks_ = 0;
  bool draining_ = false;
  bool halted_ = false;
  std::thread thread_;
};

}  // namespace headgate::net

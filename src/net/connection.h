// One accepted socket and the session that it feeds.
//
// Reads into its thread's buffer, hands that to the session, and writes what the session has left in `out` at once;
// epoll is asked about writing only when the peer does not take it all. While anything is unsent, nothing is read. An
// idle connection holds no buffer.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "base/descriptor.h"
#include "net/session.h"
#include "net/tls.h"
#include "net/worker.h"

namespace headgate::net {

class Connection final : public Watcher {
 public:
  // With a TLS context, the session is made once hands have been shaken.
  Connection(Worker& worker, Port& port, base::Descriptor socket, Peer peer, std::shared_ptr<TlsContext> tls,
             const Places::Claim& claim, Nanos now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool open();  // false: it could not be watched
  void set_place(Connections::iterator place) noexcept { place_ = place; }
  void ready(std::uint32_t events) override;
  void run(const std::function<void(Session&)>& work);
  void catch_up();  // after it was run: sends what has come of it
  void drain();
  void tick(Nanos now, bool whole_second);

  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] bool is_kept() const noexcept { return claim_.kept; }  // places are kept for its address
  // Whether nothing is being asked or answered.
  [[nodiscard]] bool is_idle() const noexcept;
  void evict() noexcept;    // closes it in favour of another
  void account(Nanos now);  // after what it holds may have changed

 private:
  class Handle;
  enum class State : std::uint8_t { kShakingHands, kOpen, kLingering, kClosed };

  // Runs `work`; without memory for it, this connection is closed and the others go on.
  template <class Work>
  void guarded(Work work) noexcept;
  void hear(std::uint32_t events, Nanos now);
  void pass_time(Nanos now, bool whole_second);
  void shed(Nanos now);
  void take_standing();
  void charge(std::size_t held) noexcept;
  void set_rank() noexcept;
  void move_to(Rank rank) noexcept;
  void shake_hands(Nanos now);
  bool begin(const Peer& peer);
  void read(Nanos now);
  [[nodiscard]] Moved pull(std::size_t& count) noexcept;
  [[nodiscard]] Moved push(std::string_view out, std::size_t& count) noexcept;
  void deliver(std::string_view bytes, Nanos now);
  void advance(Nanos now);
  [[nodiscard]] bool flush(Nanos now);
  void take_over(Nanos now);
  void ended(Nanos now);
  void time_out(Nanos now);
  void end(Nanos now);
  void discard();
  void close() noexcept;
  void want(std::uint32_t events) noexcept;
  void forget_session() noexcept;

  Worker& worker_;
  Port& port_;
  base::Descriptor socket_;
  const Places::Claim claim_;
  Connections::iterator place_;  // among the worker's of its rank
  std::size_t charged_ = 0;      // of the budget of buffered bytes
  std::unique_ptr<Session> session_;
  std::shared_ptr<Handle> handle_;
  std::unique_ptr<TlsStream> tls_;
  std::unique_ptr<Peer> peer_;  // until the session is made
  Nanos heard_{0};              // when the last byte came
  Nanos began_{0};              // the request (or handshake, or goodbye) at hand; 0: none
  Nanos stuck_{0};              // since when the peer takes nothing
  std::uint32_t events_ = 0;    // what epoll watches for
  State state_ = State::kOpen;
  Rank rank_ = Rank::kUnknown;
  Standing standing_ = Standing::kUnknown;
  bool blocked_ = false;         // `out` waits for the peer to take more
  bool read_waits_out_ = false;  // TLS must write before it can read
  bool hung_up_ = false;         // the peer will send no more, though there may be bytes unread
  bool ended_ = false;           // all of them are read
  bool again_ = false;           // a letter to read on is under way
  bool behind_ = false;          // it was run, and will catch up
  bool leaves_ = false;          // it has no place of its own, and goes once it is answered
};

}  // namespace headgate::net

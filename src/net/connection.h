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
             Nanos now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool open();  // false: it could not be watched
  void set_place(std::list<std::unique_ptr<Connection>>::iterator place) noexcept { place_ = place; }
  void ready(std::uint32_t events) override;
  void run(const std::function<void(Session&)>& work);
  void catch_up();  // after it was run: sends what has come of it
  void drain();
  void tick(Nanos now, bool whole_second);

 private:
  class Handle;
  enum class State : std::uint8_t { kShakingHands, kOpen, kLingering, kClosed };

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
  std::list<std::unique_ptr<Connection>>::iterator place_;  // among the worker's
  std::unique_ptr<Session> session_;
  std::shared_ptr<Handle> handle_;
  std::unique_ptr<TlsStream> tls_;
  std::unique_ptr<Peer> peer_;  // until the session is made
  Nanos heard_{0};              // when the last byte came
  Nanos began_{0};              // the request (or handshake, or goodbye) at hand; 0: none
  Nanos stuck_{0};              // since when the peer takes nothing
  std::uint32_t events_ = 0;    // what epoll watches for
  State state_ = State::kOpen;
  bool blocked_ = false;         // `out` waits for the peer to take more
  bool read_waits_out_ = false;  // TLS must write before it can read
  bool hung_up_ = false;         // the peer will send no more, though there may be bytes unread
  bool ended_ = false;           // all of them are read
  bool again_ = false;           // a letter to read on is under way
  bool behind_ = false;          // it was run, and will catch up
};

}  // namespace headgate::net

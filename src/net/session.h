// A Session is one connection's protocol without its socket: bytes go in, answers come out.
//
// Used by one thread at a time, the one that owns the connection; only a Link may be used from elsewhere. Sessions know
// no sockets, so tests, fuzzers and benchmarks drive them by hand:
//
//   session.receive(bytes);            // answers whatever is complete
//   send(session.out); session.out.clear();
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "headgate/clock.h"

namespace headgate::net {

// Who is at the other end, as far as the connection tells.
struct Peer {
  std::string ip;           // "127.0.0.1", "::1"
  bool loopback = false;    //
  bool tls = false;         //
  std::string certificate;  // the common name of a client certificate that was verified; empty: none
};

// How far the peer of a connection is known. Where places or memory are short, connections of less standing go first.
struct Standing {
  static const Standing kUnknown;    // has proven nothing yet
  static const Standing kAnonymous;  // was admitted without proof, where none is required
  static const Standing kKnown;      // by a token, a session or a certificate
  static const Standing kAdmin;      // the same, of an administrator

  std::uint8_t level = 0;
  std::uint64_t caller = 0;  // the same for all connections of one caller; 0: of no caller in particular

  // By level alone.
  friend constexpr bool operator==(const Standing& a, const Standing& b) noexcept { return a.level == b.level; }
  friend constexpr auto operator<=>(const Standing& a, const Standing& b) noexcept { return a.level <=> b.level; }
};
inline constexpr Standing Standing::kUnknown{0};
inline constexpr Standing Standing::kAnonymous{1};
inline constexpr Standing Standing::kKnown{2};
inline constexpr Standing Standing::kAdmin{3};

class Session;

// Reaches a connection from any thread, for as long as it lives.
class Link {
 public:
  virtual ~Link() = default;
  // Runs `work` on the connection's own thread, which then sends what it left in `out`. Never runs it before post()
  // returns, and not at all once the connection is gone.
  virtual void post(std::function<void(Session&)> work) = 0;
};

class Session {
 public:
  // What follows `bytes` in memory may be read this far (never written, never meant), so that readers may load whole
  // registers.
  static constexpr std::size_t kSlack = 64;

  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Takes in what has come, and answers what is complete into `out`. What is not complete it keeps. `now` is steady, on
  // SystemClock's timeline. Also called with nothing: once when the session takes a connection over, and when all of
  // `out` has been sent while it is paused but not busy, so that it may go on with what it has kept.
  virtual void receive(std::string_view bytes, Nanos now) = 0;
  // The peer will send no more. Most protocols just close once everything is answered.
  virtual void finish() { close = true; }
  // The server is going away: end as the protocol has it, after what has been asked is answered.
  virtual void drain() = 0;
  // All of `out` has been sent: a session that paused because the peer did not read may go on.
  virtual void sent() {}
  // The peer has taken too long over a request. Whatever is written now is sent if the peer takes it at once.
  virtual void timed_out() { close = true; }
  // The server holds too many unfinished requests, this one among them. As for timed_out().
  virtual void overloaded() { close = true; }
  // Called about once a second.
  virtual void tick(Nanos /*now*/) {}
  // Whether a request has begun and not ended: its sender is given less time than one that is merely idle.
  [[nodiscard]] virtual bool midway() const noexcept = 0;
  // Whether an answer is still to come from elsewhere, so that it is not idle.
  [[nodiscard]] virtual bool busy() const noexcept { return false; }
  // Bytes that it holds besides `out`: of requests that are not complete.
  [[nodiscard]] virtual std::size_t buffered() const noexcept { return 0; }

  // Set by the driver of the session, before the first byte.
  std::shared_ptr<Link> link;

  // To be sent, in order. Emptied by the driver.
  std::string out;
  // Close once `out` has been sent.
  bool close = false;
  // Read no more for now (an answer is outstanding, or the peer does not read).
  bool paused = false;
  // Takes the connection over from here, once `out` has been sent; `unread` is what this one had not used.
  std::unique_ptr<Session> successor;
  std::string unread;
  // Set by the session once a request has shown it. A successor begins with its predecessor's.
  Standing standing = Standing::kUnknown;
  // Closed after so long without a byte; 0: never.
  Nanos idle_limit{0};

 protected:
  Session() = default;
};

using SessionMaker = std::function<std::unique_ptr<Session>(const Peer& peer)>;

}  // namespace headgate::net

// WebSocket (RFC 6455) over a connection that an HTTP request has handed over.
//
// Text messages only. An idle connection costs about 300 bytes besides its handler: what has come of a message is kept
// only until the message is whole, and nothing else is.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"

namespace headgate::net {

// What a handler may do with its connection. From the connection's own thread only; others go through link().
class WebSocket {
 public:
  virtual void send_text(std::string_view message) = 0;
  virtual void close(int code, std::string_view reason) = 0;
  [[nodiscard]] virtual const std::shared_ptr<Link>& link() const noexcept = 0;
  // Bytes written and not taken by the peer yet.
  [[nodiscard]] virtual std::size_t backlog() const noexcept = 0;
  [[nodiscard]] virtual Nanos now() const noexcept = 0;
  // The handler has learnt who the peer is.
  virtual void set_standing(Standing standing) noexcept = 0;

 protected:
  ~WebSocket() = default;
};

// Made for each connection.
class WebSocketHandler {
 public:
  virtual ~WebSocketHandler() = default;
  virtual void opened(WebSocket& /*socket*/) {}
  // A whole text message, valid UTF-8, followed by Session::kSlack readable bytes. std::bad_alloc, and nothing else,
  // may be thrown: the connection is closed.
  virtual void message(WebSocket& socket, std::string_view text) = 0;
  // About once a second.
  virtual void tick(WebSocket& /*socket*/) noexcept {}
  // Once, perhaps from within message(): nothing sent after it arrives.
  virtual void closed() noexcept {}
  // Whether so many answers are still to come that no more messages are to be taken. Looked at again after each answer.
  [[nodiscard]] virtual bool full() const noexcept { return false; }
  // Whether an answer is still to come, which a server that is going away should wait for.
  [[nodiscard]] virtual bool busy() const noexcept { return false; }
};

struct WebSocketLimits {
  std::size_t max_message = 64 << 10;   // 1009
  std::size_t max_unsigned = 64 << 10;  // the same, until the peer is known
  // Of what the peer does not read. From a quarter on nothing more is taken from it; at the whole it is closed: 1008.
  std::size_t max_backlog = 1 << 20;
  Nanos sign_in{0};  // within this time the peer must be known, or admitted without proof: 1008; 0: any time
  Nanos ping_every{std::chrono::seconds{30}};
  Nanos pong_within{std::chrono::seconds{30}};  // after a ping something must have come, or the peer is gone
  Nanos close_within{std::chrono::seconds{5}};  // after our close frame, the peer's
};

// The session that follows the 101 answer. To reach it from another thread, a handler posts to its link and calls
// as_websocket() on the session it is given there.
[[nodiscard]] std::unique_ptr<Session> make_websocket_session(std::unique_ptr<WebSocketHandler> handler,
                                                              const WebSocketLimits& limits = {});
[[nodiscard]] WebSocket* as_websocket(Session& session) noexcept;  // nullptr: it is something else

// Whether the request asks for a WebSocket, and properly so.
enum class Upgrade : std::uint8_t { kNo, kYes, kBadVersion, kBad };
[[nodiscard]] Upgrade websocket_upgrade(const HttpRequest& request) noexcept;
// The head of the answer that accepts it. REQUIRES: its key is one, as websocket_upgrade() has found.
[[nodiscard]] std::string websocket_accept_head(const HttpRequest& request);

}  // namespace headgate::net

// gRPC calls over HTTP/2, as services see them: one message comes, one goes back; or one goes back at once, and another
// when the server ends.
//
// For TLS with ALPN "h2" and for cleartext connections that begin with HTTP/2's preface; any other beginning is closed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/http.h"
#include "net/session.h"

namespace headgate::net {

// https://grpc.io/docs/guides/status-codes: only those we send.
enum class GrpcStatus : std::uint8_t {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

struct GrpcAnswer;

// Answers one call later, from any thread, exactly once. Dropping it unanswered answers kUnavailable. Calls of one
// connection are answered in any order.
class GrpcLater {
 public:
  virtual ~GrpcLater() = default;
  virtual void send(GrpcAnswer answer) = 0;
};

// What a handler may do besides filling in the answer.
class GrpcContext {
 public:
  // The answer comes later: the one at hand is not looked at.
  [[nodiscard]] virtual std::shared_ptr<GrpcLater> later() = 0;

 protected:
  ~GrpcContext() = default;
};

struct GrpcCall {
  std::string_view path;     // "/package.Service/Method"
  std::string_view message;  // as sent, without its five-byte prefix
  std::span<const Header> metadata;
  const Peer* peer = nullptr;
  Nanos now{0};
  GrpcContext* context = nullptr;  // until the handler returns
};

struct GrpcAnswer {
  GrpcStatus status = GrpcStatus::kOk;
  std::string text;     // for people, when the status is not kOk
  std::string message;  // serialised
  bool stays = false;   // the call stays open after the message, until its deadline or the server's end
  std::string last;     // with `stays`: a message to send when the server ends
};

// Shared by all connections of all threads. Answers at once, or by GrpcCall::context.
class GrpcHandler {
 public:
  virtual ~GrpcHandler() = default;
  // std::bad_alloc, and nothing else, may be thrown: the connection is closed.
  virtual void call(const GrpcCall& call, GrpcAnswer& answer) = 0;
  // Called before, with the head alone, as long as the peer is not known. False: `answer` says why not, and no message
  // is read. Sets `standing` to what it has learnt of the peer.
  [[nodiscard]] virtual bool admits(const GrpcCall& /*head*/, GrpcAnswer& /*answer*/, Standing& standing) {
    standing = Standing::kAnonymous;
    return true;
  }
};

struct GrpcLimits {
  std::size_t max_message = 1 << 20;               // kResourceExhausted
  std::size_t max_pending = 8 << 20;               // of all messages of a connection that are not complete: the same
  std::size_t max_unsigned = 16 << 10;             // both, until the peer is known
  std::uint32_t max_concurrent_streams = 1000;     // further ones are refused; also bounds what is answered later
  std::uint32_t max_control_frames = 1000;         // that no call has earned; more is a flood: GOAWAY
  std::uint32_t max_resets_per_second = 200;       // more is a flood: GOAWAY
  std::size_t max_header_bytes = 16 << 10;         // kResourceExhausted
  std::size_t max_backlog = 4 << 20;               // of answers the peer does not read; from a quarter on, reads pause
  Nanos request_within{std::chrono::seconds{10}};  // from a call's head to its end: kDeadlineExceeded
  Nanos ping_every{std::chrono::seconds{60}};      // of silence
  // Within this time of its beginning a call must have shown who the peer is, unless its certificate has, or the
  // connection ends with GOAWAY; pings do not count. 0: any time.
  Nanos sign_in{0};
  Nanos pong_within{std::chrono::seconds{20}};  // after a ping something must have come, or the peer is gone
};

[[nodiscard]] std::unique_ptr<Session> make_grpc_session(GrpcHandler& handler, const Peer& peer,
                                                         const GrpcLimits& limits = {});

}  // namespace headgate::net

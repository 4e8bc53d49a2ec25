// HTTP/1.1 requests and replies, as handlers see them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/session.h"

namespace headgate::net {

enum class Method : std::uint8_t { kGet, kHead, kPost, kPut, kDelete, kPatch, kOptions, kOther };
[[nodiscard]] std::string_view to_string(Method method) noexcept;  // "GET"

struct Header {
  std::string_view name;
  std::string_view value;
};

// All text is borrowed, and valid until the handler returns. The body is followed by Session::kSlack readable bytes.
struct HttpRequest {
  Method method = Method::kGet;
  std::string_view target;  // as sent: "/v1/check?x=1"
  std::string_view path;    // "/v1/check", percent-encoding as sent
  std::string_view query;   // "x=1"
  std::span<const Header> headers;
  std::string_view body;
  const Peer* peer = nullptr;
  Nanos now{0};  // steady, of the read that brought it

  // The first header of that name (given in lower case), without surrounding blanks; empty: none.
  [[nodiscard]] std::string_view header(std::string_view lower_case_name) const noexcept;
  // How often it was given.
  [[nodiscard]] int count(std::string_view lower_case_name) const noexcept;
};

// Text with %41 for A (and, in a query, + for a blank) decoded. False: not well formed, or a NUL.
[[nodiscard]] bool percent_decoded(std::string_view text, bool plus_is_blank, std::string& out);
// The decoded value of a query parameter; `found` says whether there was one. The first wins.
[[nodiscard]] std::string query_value(std::string_view query, std::string_view name, bool* found = nullptr);

struct HttpAnswer {
  int status = 200;
  std::string_view content_type = "application/json";  // empty: none (204)
  std::string_view body;
  std::string_view headers;  // more of them, whole lines: "Retry-After: 1\r\n"
};

// Answers one request later, from any thread, exactly once. Dropping it unanswered answers 503.
class LaterReply {
 public:
  virtual ~LaterReply() = default;
  virtual void send(const HttpAnswer& answer) = 0;  // copies what it needs
  // True once the asker is gone; whatever is done for it may be cancelled.
  [[nodiscard]] virtual bool abandoned() const noexcept = 0;
};

// What a handler answers with. Exactly one of these is called before handle() returns.
class HttpReply {
 public:
  // Written at once. For HEAD the body is counted but left out.
  virtual void send(const HttpAnswer& answer) = 0;
  // To be answered later: the connection reads no further request until it is.
  [[nodiscard]] virtual std::shared_ptr<LaterReply> later() = 0;
  // Sends the head as it is (status line, headers, empty line) and gives the connection away.
  virtual void take_over(std::string_view head, std::unique_ptr<Session> successor) = 0;

  // What the handler has learnt of the peer.
  Standing standing = Standing::kUnknown;

 protected:
  ~HttpReply() = default;
};

// Shared by all connections of all threads.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // std::bad_alloc, and nothing else, may be thrown: the connection is closed.
  virtual void handle(const HttpRequest& request, HttpReply& reply) = 0;
  // Called instead, and before, where the head is complete and the body is not. False: it has been answered, and the
  // connection closes without reading the body. REQUIRES: no later() and no take_over().
  [[nodiscard]] virtual bool admits(const HttpRequest& /*head*/, HttpReply& /*reply*/) { return true; }
};

struct HttpLimits {
  std::size_t max_head = 16 << 10;  // request line and headers: 431
  std::size_t max_body = 1 << 20;   // 413
  std::size_t max_headers = 100;    // 431
  Nanos idle{std::chrono::seconds{75}};
  // Within this time of its beginning a request must have shown who the peer is, unless its certificate has, or the
  // connection is closed between two requests. 0: any time.
  Nanos sign_in{0};
};

[[nodiscard]] std::unique_ptr<Session> make_http_session(HttpHandler& handler, const Peer& peer,
                                                         const HttpLimits& limits = {});

}  // namespace headgate::net

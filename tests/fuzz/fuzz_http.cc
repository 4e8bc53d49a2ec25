// Any bytes as the requests of one connection, whole and in pieces: the answers are the same, each is well formed, and
// nothing is read beyond what was given.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/http.h"
#include "support/sessions.h"

namespace {

using namespace headgate;

void check(bool holds) {
  if (!holds) std::abort();
}

class Echo final : public net::HttpHandler {
 public:
  void handle(const net::HttpRequest& request, net::HttpReply& reply) noexcept override {
    check(!request.path.empty() && request.target.size() >= request.query.size());
    check(request.body.size() <= limits.max_body && request.headers.size() <= limits.max_headers);
    std::string body;
    std::string decoded;
    for (const net::Header& header : request.headers) {
      check(!header.name.empty() && header.value.find_first_of("\r\n") == std::string_view::npos);
      body.append(header.name).append(":").append(header.value);
    }
    check(request.count("host") <= 1 && request.count("content-length") <= 1 &&
          request.count("transfer-encoding") + request.count("content-length") <= 1);
    if (net::percent_decoded(request.path, false, decoded)) body += decoded;
    body += net::query_value(request.query, "a");
    body += request.body;
    net::HttpAnswer answer;
    answer.body = body;
    reply.send(answer);
  }
  net::HttpLimits limits;
};

// The answers without their dates; aborts if they are not answers one after another.
std::string answers(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    check(text.substr(0, 9) == "HTTP/1.1 ");
    const std::size_t end = text.find("\r\n\r\n");
    check(end != std::string_view::npos);
    std::string_view head = text.substr(0, end + 4);
    const std::size_t date = head.find("Date: ");
    if (date == std::string_view::npos) {
      check(head == "HTTP/1.1 100 Continue\r\n\r\n");
      text.remove_prefix(head.size());
      continue;  // depends on how the bytes come
    }
    kept += head.substr(0, date);
    kept += head.substr(head.find("\r\n", date) + 2);
    const std::size_t length = head.find("Content-Length: ");
    check(length != std::string_view::npos);
    text.remove_prefix(head.size());
    // HEAD's answers count a body and have none.
    const std::size_t size = std::strtoul(head.data() + length + 16, nullptr, 10);
    if (text.size() >= size && text.substr(0, 9) != "HTTP/1.1 ") {
      kept += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  return kept;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 8192) return 0;
  // The first byte says how large the pieces are.
  const std::size_t piece = data[0] % 32 + 1;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Echo echo;
  echo.limits.max_head = 512;
  echo.limits.max_body = 300;
  echo.limits.max_headers = 8;
  net::Peer peer;
  test::Hand whole(net::make_http_session(echo, peer, echo.limits));
  whole.receive(text);
  test::Hand pieces(net::make_http_session(echo, peer, echo.limits));
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) pieces.receive(text.substr(0, piece));
  check(answers(whole.sent) == answers(pieces.sent));
  check(whole.closed == pieces.closed);
  check(whole.closed || whole.session().midway() == pieces.session().midway());
  return 0;
}

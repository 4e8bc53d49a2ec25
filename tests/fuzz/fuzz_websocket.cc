// Any bytes as what a WebSocket client sends, in pieces of any size: what is understood does not depend on the pieces,
// every message delivered is UTF-8 within its limit, and nothing but whole frames comes out.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "net/websocket.h"
#include "support/websocket_frames.h"

namespace {

using namespace headgate;
using namespace std::chrono_literals;

constexpr std::size_t kMaxMessage = 300;

void check(bool holds) {
  if (!holds) std::abort();
}

class Echo final : public net::WebSocketHandler {
 public:
  void message(net::WebSocket& socket, std::string_view text) noexcept override {
    check(text.size() <= kMaxMessage && base::is_utf8(text));
    if (text == "close") socket.close(1000, "as asked");
    socket.send_text(text);
  }
};

std::string answer(std::string_view bytes, std::size_t piece) {
  net::WebSocketLimits limits;
  limits.max_message = kMaxMessage;
  limits.max_backlog = 2000;
  const auto session = net::make_websocket_session(std::make_unique<Echo>(), limits);
  while (!bytes.empty() && !session->close) {
    // A copy of its own, so that reading past it is found out.
    const std::string part(bytes.substr(0, piece));
    session->receive(part, 1s);
    bytes.remove_prefix(part.size());
  }
  check(session->out.size() <= limits.max_backlog + 127);
  std::string rest = session->out;
  for (const test::ServerFrame& each : test::frames_of(session->out)) {
    check(each.opcode == 1 || each.opcode == 8 || each.opcode == 10);
    rest.erase(0, each.payload.size() + (each.payload.size() < 126 ? 2 : 4));
  }
  check(rest.empty());
  return session->out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  check(answer(bytes, bytes.size() + 1) == answer(bytes, data[0] % 16 + 1U));
  return 0;
}

// Any bytes as the commands of one connection, whole and in pieces: the answers are the same, arguments are within
// their bounds, and nothing is read beyond what was given.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/resp.h"
#include "support/sessions.h"

namespace {

using namespace headgate;

void check(bool holds) {
  if (!holds) std::abort();
}

constexpr std::size_t kMaxArgs = 8;
constexpr std::size_t kMaxBulk = 100;

class Echo final : public net::RespCommands {
 public:
  void command(std::span<const std::string_view> args, net::RespWriter& reply,
               net::RespContext& context) noexcept override {
    check(!args.empty() && args.size() <= kMaxArgs);
    if (args[0] == "Q") context.quit();
    if (args[0] == "3") reply.set_version(3);
    reply.map(args.size());
    for (const std::string_view arg : args) {
      reply.bulk(arg);
      reply.error(arg);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 8192) return 0;
  // The first byte says how large the pieces are.
  const std::size_t piece = data[0] % 32 + 1;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  net::RespLimits limits;
  limits.max_args = kMaxArgs;
  limits.max_bulk = kMaxBulk;
  limits.max_command = 500;
  limits.max_line = 200;
  test::Hand whole(net::make_resp_session(std::make_unique<Echo>(), limits));
  whole.receive(text);
  test::Hand pieces(net::make_resp_session(std::make_unique<Echo>(), limits));
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) pieces.receive(text.substr(0, piece));
  check(whole.sent == pieces.sent);
  check(whole.closed == pieces.closed);
  check(whole.closed || whole.session().midway() == pieces.session().midway());
  return 0;
}

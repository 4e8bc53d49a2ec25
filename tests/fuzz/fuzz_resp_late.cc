// Several RESP connections with the real commands, over a store that answers late and in any order, while the clock
// steps and connections close: each command has exactly one reply, and replies come in the order of the commands.
#include <charconv>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/resp/resp_api.h"
#include "fuzz/held_remote.h"
#include "fuzz/steps.h"
#include "policy/reader.h"
#include "support/sessions.h"

namespace {

using namespace headgate;
using namespace std::chrono_literals;
using test::check_that;

constexpr std::size_t kConnections = 3;
constexpr std::size_t kMostBytes = 600;
constexpr std::string_view kPolicies =
    "queue: {max_waiting: 3}\n"
    "policies:\n"
    "  - {id: run, match: {operations: [run]}, behavior: queue, max_wait: 5s,\n"
    "     limit: {strategy: concurrency, max: 2, lease_ttl: 3s}}\n"
    "  - {id: wait, match: {operations: [wait]}, behavior: queue, max_wait: 5s, limit: 2/10s}\n"
    "  - {id: send, match: {operations: [send]}, limit: 3/10s}\n";

// What the reply to a command must look like.
struct Expected {
  enum class Kind : std::uint8_t { kText, kDecision, kThrottle, kAny };
  Kind kind = Kind::kAny;
  std::string text;
};

// One reply off the front; nullopt: it has not come whole.
struct Reply {
  char mark = 0;
  std::size_t elements = 0;
  std::string text;
};
std::optional<Reply> take(std::string_view& bytes) {
  const std::size_t end = bytes.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  Reply reply{.mark = bytes[0], .text = std::string(bytes.substr(1, end - 1))};
  std::string_view rest = bytes.substr(end + 2);
  long long count = 0;
  std::from_chars(reply.text.data(), reply.text.data() + reply.text.size(), count);
  if (reply.mark == '$' && count >= 0) {
    const auto length = static_cast<std::size_t>(count);
    if (rest.size() < length + 2) return std::nullopt;
    reply.text = rest.substr(0, length);
    check_that(rest.substr(length, 2) == "\r\n", "a bulk string ends with its line");
    rest.remove_prefix(length + 2);
  } else if (reply.mark == '*' || reply.mark == '%') {
    reply.elements = static_cast<std::size_t>(count) * (reply.mark == '%' ? 2 : 1);
    for (std::size_t i = 0; i < reply.elements; ++i) {
      if (!take(rest)) return std::nullopt;
    }
  } else {
    check_that(std::string_view("+-:$_#").find(reply.mark) != std::string_view::npos, "a reply begins with its mark");
  }
  bytes = rest;
  return reply;
}

// Without a database file, sockets or threads, but with everything that commands touch.
class Server {
 public:
  Server() : engine_(options()), access_(database(), {}, clock_) {
    policy::ReadResult read = policy::read_text(std::string(kPolicies), "fuzz.yaml");
    for (const policy::Problem& problem : read.problems) check_that(false, problem.text().c_str());
    check_that(engine_.load(std::move(read.document)).has_value(), "the policies are fine");
    service_.engine = &engine_;
    service_.database = &database();
    service_.access = &access_;
    service_.traffic = &traffic();
    service_.notices = &notices();
    service_.clock = &clock_;
    service_.wake = [] {};
    for (Connection& connection : connections_) open(connection);
  }

  void step(test::Steps& input) {
    const std::uint8_t what = input.byte();
    const std::uint8_t how = input.byte();
    Connection& connection = connections_[(what >> 4) % kConnections];
    switch (what % 8) {
      case 0:
      case 1:
      case 2: return send(connection, how);
      case 3: (void)remote_.answer(how & 127U, (how & 128U) != 0); return;
      case 4: return hear(connection);
      case 5:
        connection.hand.reset();  // pending commands have no connection any more
        return open(connection);
      case 6: clock_.advance(how < 128 ? 100ms : 3s); break;
      default: break;
    }
    poll();
  }

  void finish() {
    for (int i = 0; i < 100; ++i) {
      while (remote_.answer(0)) continue;
      for (Connection& connection : connections_) hear(connection);
      clock_.advance(1s);
      poll();
    }
    check_that(engine_.queue().size() == 0, "nobody waits in the end");
    for (Connection& connection : connections_) {
      check_that(connection.expected.empty(), "every command has a reply");
      check_that(connection.unread.empty(), "there is no further reply");
    }
  }

 private:
  struct Connection {
    std::unique_ptr<test::Hand> hand;
    std::deque<Expected> expected;
    std::string unread;
  };

  // These are slow to make and keep nothing that a run depends on.
  static state::Database& database() {
    static const std::unique_ptr<state::Database> kDatabase = std::move(*state::Database::open(":memory:"));
    return *kDatabase;
  }
  static observe::Traffic& traffic() {
    static observe::Traffic traffic;
    return traffic;
  }
  static observe::Notices& notices() {
    static observe::Notices notices;
    return notices;
  }

  engine::EngineOptions options() {
    engine::EngineOptions options;
    options.clock = &clock_;
    options.seed = 1;
    options.remote = &remote_;
    return options;
  }

  void open(Connection& connection) {
    net::Peer peer;
    peer.ip = "127.0.0.1";
    peer.loopback = true;
    connection.expected.clear();
    connection.unread.clear();
    connection.hand = std::make_unique<test::Hand>(net::make_resp_session(api::make_resp_commands(service_, peer)));
  }

  void send(Connection& connection, std::uint8_t how) {
    using Kind = Expected::Kind;
    std::string bytes;
    for (int i = 0; i < 1 + (how >> 6); ++i) {
      const std::string number = std::to_string(++sent_);
      switch (how % 8) {
        case 0: command(connection, bytes, "HG.CHECK a run", {Kind::kDecision, {}}); break;
        case 1: command(connection, bytes, "HG.CHECK a wait", {Kind::kDecision, {}}); break;
        case 2: command(connection, bytes, "HG.CHECK a send", {Kind::kDecision, {}}); break;
        case 3: command(connection, bytes, "CL.THROTTLE k 1 1 10 1", {Kind::kThrottle, {}}); break;
        case 4: command(connection, bytes, "PING", {Kind::kText, "PONG"}); break;
        case 5: command(connection, bytes, "HG.RELEASE 0123456789abcdef", {Kind::kAny, {}}); break;
        case 6: command(connection, bytes, "NO.SUCH", {Kind::kAny, {}}); break;
        default: break;
      }
      // Tells one place in the order from another.
      if ((how & 8U) != 0) command(connection, bytes, "ECHO " + number, {Kind::kText, number});
    }
    connection.hand->receive(bytes, clock_.now());
    hear(connection);
  }
  static void command(Connection& connection, std::string& bytes, const std::string& line, Expected expected) {
    bytes += line + "\r\n";
    connection.expected.push_back(std::move(expected));
  }

  void hear(Connection& connection) {
    connection.hand->run_posted(clock_.now());
    connection.unread += connection.hand->take();
    std::string_view bytes = connection.unread;
    while (const std::optional<Reply> reply = bytes.empty() ? std::nullopt : take(bytes)) {
      check_that(!connection.expected.empty(), "no reply without a command");
      judge(connection.expected.front(), *reply);
      connection.expected.pop_front();
    }
    connection.unread = std::string(bytes);
    check_that(!connection.hand->closed, "a good connection stays open");
  }
  static void judge(const Expected& expected, const Reply& reply) {
    switch (expected.kind) {
      case Expected::Kind::kText: check_that(reply.text == expected.text, "replies are in order"); break;
      case Expected::Kind::kDecision:
        check_that(reply.mark == '-' || (reply.mark == '*' && reply.elements == 6), "a check is answered as one");
        break;
      case Expected::Kind::kThrottle:
        check_that(reply.mark == '-' || (reply.mark == '*' && reply.elements == 5), "CL.THROTTLE is answered as such");
        break;
      case Expected::Kind::kAny: break;
    }
  }

  void poll() {
    remote_.at_once = true;
    (void)engine_.poll();
    remote_.at_once = false;
  }

  ManualClock clock_{std::chrono::seconds{1'700'000'000}};
  test::HeldRemote remote_{clock_};
  engine::Engine engine_;
  service::Access access_;
  service::Service service_;
  Connection connections_[kConnections];
  std::uint64_t sent_ = 0;
};

}  // namespace

// Two bytes for each step.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > kMostBytes) return 0;
  test::Steps input(data, size);
  Server server;
  while (input.more()) server.step(input);
  server.finish();
  return 0;
}

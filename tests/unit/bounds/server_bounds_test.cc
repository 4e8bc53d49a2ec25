// The bounds of what the server keeps and queues, and of its protocols.
#include <future>

#include "api/http/event_feed.h"
#include "base/background.h"
#include "bounds.h"
#include "net/grpc.h"
#include "net/grpc_text.h"
#include "net/resp.h"
#include "net/websocket.h"
#include "observe/history.h"
#include "observe/notices.h"
#include "observe/traffic.h"
#include "quota/book.h"
#include "service/alerts.h"
#include "service/sign_in.h"
#include "store/redis/charge_queue.h"
#include "store/redis/problems.h"
#include "store/redis/reader.h"
#include "store/redis/url.h"
#include "support/h2_client.h"
#include "support/sessions.h"
#include "support/websocket_frames.h"

namespace headgate::test {
namespace {

using namespace std::chrono_literals;

observe::Notice numbered(std::size_t number, std::string kind = "emergency") {
  return {.id = number, .kind = std::move(kind), .time = 1s, .text = "on"};
}

bool alerts() {
  service::Alerts alerts;
  for (std::size_t i = 1; i <= service::Alerts::kMostOfKind + 10; ++i) alerts.on_notice(numbered(i));
  return alerts.latest().size() == service::Alerts::kMostOfKind && !alerts.find(10) && alerts.find(11).has_value();
}

// The listener's token stays good.
const api::EventFeed::StillGood kAlways = [](Nanos) { return true; };

bool event_listeners() {
  const auto feed = std::make_shared<api::EventFeed>();
  std::vector<std::unique_ptr<net::Session>> listeners;
  for (std::size_t i = 0; i < api::EventFeed::kMostListeners; ++i) listeners.push_back(feed->listen(0, kAlways));
  const bool full = feed->listen(0, kAlways) == nullptr;
  listeners.pop_back();
  return full && feed->listen(0, kAlways) != nullptr;
}

bool events_kept() {
  const auto feed = std::make_shared<api::EventFeed>();
  for (std::size_t i = 1; i <= api::EventFeed::kMostKept + 1; ++i) feed->on_notice(numbered(i));
  Hand hand(feed->listen(0, kAlways));
  hand.receive({});
  return !hand.sent.starts_with("id: 1\n") && hand.sent.starts_with("id: 2\n");
}

bool events_unread() {
  const auto feed = std::make_shared<api::EventFeed>();
  const std::unique_ptr<net::Session> session = feed->listen(0, kAlways);
  const auto link = std::make_shared<HandLink>();
  session->link = link;
  session->receive({}, 1ns);
  for (std::size_t i = 1; i < 100'000 && !session->close; ++i) {
    observe::Notice notice = numbered(i);
    notice.text = std::string(1'000, 'x');
    feed->on_notice(notice);
    link->run(*session);
  }
  return session->close && session->out.size() <= api::EventFeed::kMostBacklog;
}

// Keeps the notices' thread until it is let go.
class Gate final : public observe::NoticeSink {
 public:
  void on_notice(const observe::Notice& /*notice*/) override {
    if (told++ != 0) return;
    begun.set_value();
    go.get_future().wait();
  }
  std::promise<void> begun;
  std::promise<void> go;
  std::atomic<std::size_t> told{0};
};

bool notices_queued() {
  observe::Notices notices;
  const auto gate = std::make_shared<Gate>();
  notices.add(gate);
  notices.tell(numbered(0));
  gate->begun.get_future().wait();
  for (std::size_t i = 0; i < observe::Notices::kMostQueued + 3; ++i) notices.tell(numbered(i, "violation"));
  const bool dropped = notices.dropped() == 3;
  for (std::size_t i = 0; i < observe::Notices::kKeptFree + 2; ++i) notices.tell(numbered(i));
  const bool kept_free = notices.dropped() == 5;
  gate->go.set_value();
  notices.flush();
  return dropped && kept_free && gate->told == observe::Notices::kMostQueued + observe::Notices::kKeptFree + 1;
}

bool webhook_queue() {
  // Nothing listens there, and the first attempt's back-off outlasts the test: at most one has left the queue.
  observe::WebhookOptions options;
  options.url = "http://127.0.0.1:1/";
  options.queue = 5;
  options.back_off = [](int) { return 1h; };
  auto made = observe::make_webhook_sink(options);
  if (!made) return false;
  for (std::size_t i = 0; i < 50; ++i) (*made)->on_notice(numbered(i));
  const observe::WebhookCounts counts = (*made)->counts();
  return counts.queued <= 6 && counts.dropped >= 44;
}

bool agents_by_name() {
  observe::Traffic traffic;
  for (std::size_t i = 0; i < observe::Traffic::kMostAgents + 50; ++i) {
    const std::string agent = "agent " + std::to_string(i);
    traffic.add({.agent = agent}, 1s);
  }
  return traffic.agents(1'000'000).size() == observe::Traffic::kMostAgents &&
         traffic.totals()[0].allowed == observe::Traffic::kMostAgents + 50;
}

bool history_steps() {
  using observe::History;
  History history;
  const Nanos start = 1'000'000s;
  for (int second = 0; second < 100'000; ++second) history.add({.allowed = 1}, start + second * 1s);
  const Nanos end = start + 100'000s;
  return history.since(end - 200s, 1s).size() <= History::kFineSteps &&
         history.since(Nanos{0}, 10s).size() == History::kCoarseSteps;
}

bool codes() {
  service::ExpiringSecrets secrets(3, 1min);
  std::vector<std::string> made;
  for (int i = 0; i < 4; ++i) made.push_back(secrets.make(1s));
  return !secrets.holds(made[0], 2s) && secrets.holds(made[1], 2s) && secrets.take(made[3], 2s);
}

bool background_queue() {
  std::promise<void> begun;
  std::promise<void> go;
  base::Background background;
  bool taken = background.run([&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  for (std::size_t i = 0; i < base::Background::kMostQueued; ++i) taken = taken && background.run([] {});
  const bool refused = !background.run([] {});
  go.set_value();
  return taken && refused;
}

bool background_bytes() {
  std::promise<void> begun;
  std::promise<void> go;
  base::Background background({.threads = 1, .queued = 10, .bytes = 100});
  bool taken = background.run([&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  taken = taken && background.run([] {}, 60) && background.run([] {}, 40);
  const bool refused = !background.run([] {}, 1);
  go.set_value();
  return taken && refused;
}

bool redis_problems() {
  store::redis::Problems problems;
  for (std::size_t i = 0; i < store::redis::Problems::kMaxKinds; ++i) {
    const std::string kind = "KIND" + std::to_string(i);
    std::string_view told = kind;
    if (!problems.begins(told, 1s) || told != kind) return false;
  }
  std::string_view other = "NEW";
  return problems.begins(other, 1s) && other == "OTHER";
}

bool redis_reply_breaks(std::string_view bytes) {
  store::redis::ReplyReader reader(1'000);
  reader.feed(bytes.data(), bytes.size());
  return reader.next() == nullptr && reader.broken();
}

// Answers nothing at once.
class LaterCommands final : public net::RespCommands {
 public:
  explicit LaterCommands(std::vector<std::shared_ptr<net::RespLater>>& asked) : asked_(asked) {}
  void command(std::span<const std::string_view> /*args*/, net::RespWriter& /*reply*/,
               net::RespContext& context) noexcept override {
    asked_.push_back(context.later());
  }

 private:
  std::vector<std::shared_ptr<net::RespLater>>& asked_;
};

bool resp_closes(const std::string& bytes, const net::RespLimits& limits) {
  std::vector<std::shared_ptr<net::RespLater>> asked;
  Hand hand(net::make_resp_session(std::make_unique<LaterCommands>(asked), limits));
  hand.receive(bytes);
  return asked.empty() && hand.closed && hand.sent.starts_with("-ERR Protocol error");
}

bool resp_commands_asked() {
  std::vector<std::shared_ptr<net::RespLater>> asked;
  Hand hand(net::make_resp_session(std::make_unique<LaterCommands>(asked)));
  std::string commands;
  for (int i = 0; i < 300; ++i) commands += "PING\r\n";
  hand.receive(commands);
  const bool paused = asked.size() == 128 && hand.session().paused && hand.session().busy();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    asked[i]->send([](net::RespWriter& reply) { reply.simple("OK"); });
    hand.run_posted();
  }
  std::string all;
  for (int i = 0; i < 300; ++i) all += "+OK\r\n";
  return paused && hand.sent == all;
}

class Deaf final : public net::WebSocketHandler {
 public:
  void message(net::WebSocket& socket, std::string_view text) noexcept override {
    for (int i = 0; i < 100; ++i) socket.send_text(text);
  }
};

int websocket_close_code(std::string_view bytes, const net::WebSocketLimits& limits) {
  const std::unique_ptr<net::Session> session = net::make_websocket_session(std::make_unique<Deaf>(), limits);
  session->receive(bytes, 1s);
  const std::vector<ServerFrame> frames = frames_of(session->out);
  return frames.empty() || frames.back().opcode != 8 ? 0 : frames.back().close_code();
}

class EmptyAnswers final : public net::GrpcHandler {
 public:
  void call(const net::GrpcCall& /*call*/, net::GrpcAnswer& /*answer*/) noexcept override {}
};

// One gRPC connection, and its client.
struct GrpcPair {
  explicit GrpcPair(const net::GrpcLimits& limits) : session(net::make_grpc_session(handler, {}, limits)) {}
  std::int32_t ask(std::string message, bool keep_open, const H2Client::Headers& more = {}) {
    const auto prefix = net::grpc_prefix(static_cast<std::uint32_t>(message.size()));
    H2Client::Headers headers = H2Client::grpc_headers("/x.Y/Z");
    headers.insert(headers.end(), more.begin(), more.end());
    const std::int32_t id = client.request(headers, std::string(prefix.begin(), prefix.end()) + message, keep_open);
    for (int i = 0; i < 100; ++i) {
      session->receive(client.out(), 1s);
      client.in(std::exchange(session->out, {}));
      session->sent();
    }
    return id;
  }
  std::string status(std::int32_t id) { return client.replies[id].headers["grpc-status"]; }

  EmptyAnswers handler;
  H2Client client;
  std::unique_ptr<net::Session> session;
};
const std::string kExhausted = "8";  // RESOURCE_EXHAUSTED

bool grpc_message() {
  GrpcPair pair({.max_message = 100});
  const std::int32_t inside = pair.ask(std::string(100, 'x'), false);
  const std::int32_t outside = pair.ask(std::string(101, 'x'), false);
  return pair.status(inside) == "0" && pair.status(outside) == kExhausted;
}

bool grpc_pending() {
  GrpcPair pair({.max_message = 1'000, .max_pending = 2'500});
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(pair.ask(std::string(995, 'x'), true));
  return pair.status(ids[0]).empty() && pair.status(ids[1]).empty() && pair.status(ids[2]) == kExhausted;
}

bool grpc_headers() {
  GrpcPair pair({.max_header_bytes = 2'000});
  const std::int32_t outside = pair.ask("x", false, {{"x-large", std::string(3'000, 'h')}});
  const std::int32_t inside = pair.ask("x", false);
  return pair.status(outside) == kExhausted && pair.status(inside) == "0";
}

bool quota_plans() {
  quota::Book book;
  const quota::Plan plan = book.plans().front().second;
  bool taken = true;
  for (std::size_t i = book.plans().size(); i < quota::Book::kMostPlans; ++i) {
    taken = taken && book.set_plan("plan" + std::to_string(i), plan).has_value();
  }
  return taken && !book.set_plan("one_more", plan) && book.plans().size() == quota::Book::kMostPlans;
}

const BoundRow kServer[] = {
    {"alerts", "the oldest of its kind is forgotten", alerts},
    {"event_listeners", "no further one is taken until one leaves", event_listeners},
    {"events_kept", "the oldest is forgotten", events_kept},
    {"events_unread", "the listener is closed, with no more than the bound in memory", events_unread},
    {"notices_queued", "everyday ones are dropped and counted; others have room of their own", notices_queued},
    {"webhook_queue", "the oldest is dropped and counted", webhook_queue},
    {"agents_by_name", "further ones are counted, but not by name", agents_by_name},
    {"history_steps", "the oldest steps are overwritten", history_steps},
    {"codes", "the oldest code or session is worthless", codes},
    {"background_queue", "further work is refused", background_queue},
    {"background_bytes", "further work is refused", background_bytes},
    {"quota_plans", "further ones are refused", quota_plans},
};

const BoundRow kRedis[] = {
    {"kinds_of_problems", "further ones are all OTHER", redis_problems},
    {"reply_text", "a protocol error, before the text has come", [] { return redis_reply_breaks("$2000\r\n"); }},
    {"reply_elements", "a protocol error, before memory is taken", [] { return redis_reply_breaks("*1000001\r\n"); }},
    {"url", "refused",
     [] { return !store::redis::parse_url("redis://" + std::string(store::redis::kMaxUrlBytes, 'h')); }},
    {"endpoints", "refused",
     [] {
       std::string url = "redis+cluster://h";
       for (std::size_t i = 0; i < store::redis::kMaxUrlEndpoints; ++i) url += ",h" + std::to_string(i);
       return !store::redis::parse_url(url);
     }},
};

const BoundRow kProtocols[] = {
    {"resp_arguments", "a protocol error, and closed",
     [] { return resp_closes("*9\r\n" + std::string(), {.max_args = 8}); }},
    {"resp_argument", "a protocol error, and closed", [] { return resp_closes("*1\r\n$101\r\n", {.max_bulk = 100}); }},
    {"resp_command", "a protocol error, and closed",
     [] {
       const std::string bulk = "$90\r\n" + std::string(90, 'x') + "\r\n";
       return resp_closes("*8\r\n" + bulk + bulk + bulk + bulk + bulk + bulk, {.max_bulk = 100, .max_command = 300});
     }},
    {"resp_line", "a protocol error, and closed", [] { return resp_closes(std::string(300, 'x'), {.max_line = 200}); }},
    {"resp_commands_asked", "the next ones wait, and all are answered in order", resp_commands_asked},
    {"grpc_message", "RESOURCE_EXHAUSTED", grpc_message},
    {"grpc_pending", "RESOURCE_EXHAUSTED for what would go past it", grpc_pending},
    {"grpc_headers", "RESOURCE_EXHAUSTED, and the connection lives", grpc_headers},
    {"websocket_message", "closed with 1009",
     [] { return websocket_close_code(frame(std::string(101, 'x')), {.max_message = 100}) == 1009; }},
    {"websocket_backlog", "closed with 1008",
     [] { return websocket_close_code(frame(std::string(100, 'x')), {.max_backlog = 5'000}) == 1008; }},
};

INSTANTIATE_TEST_SUITE_P(Server, Bounds, testing::ValuesIn(kServer), bound_name);
INSTANTIATE_TEST_SUITE_P(Redis, Bounds, testing::ValuesIn(kRedis), bound_name);
INSTANTIATE_TEST_SUITE_P(Protocols, Bounds, testing::ValuesIn(kProtocols), bound_name);

}  // namespace
}  // namespace headgate::test

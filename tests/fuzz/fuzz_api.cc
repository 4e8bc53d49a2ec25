// Any request to the whole HTTP API: it is answered exactly once, with a status that fits and JSON that parses,
// for any request and any caller.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/http/http_api.h"
#include "engine/line_fields.h"

namespace {

using namespace headgate;

void check(bool holds) {
  if (!holds) std::abort();
}

class Later final : public net::LaterReply {
 public:
  void send(const net::HttpAnswer& /*answer*/) override {}
  [[nodiscard]] bool abandoned() const noexcept override { return true; }
};

class Reply final : public net::HttpReply {
 public:
  void send(const net::HttpAnswer& answer) override {
    check(++answers == 1);
    check(answer.status >= 200 && answer.status < 600 && answer.status != 500);
    check(answer.headers.empty() || answer.headers.ends_with("\r\n"));
    check(answer.headers.find("\r\n\r\n") == std::string_view::npos);
    if (answer.content_type.find("json") == std::string_view::npos) return;
    check(!nlohmann::json::parse(answer.body, nullptr, false).is_discarded());
  }
  std::shared_ptr<net::LaterReply> later() override {
    check(++answers == 1);
    return std::make_shared<Later>();
  }
  void take_over(std::string_view head, std::unique_ptr<net::Session> successor) override {
    check(++answers == 1);
    check(head.ends_with("\r\n\r\n") && successor != nullptr);
  }
  int answers = 0;
};

struct Server {
  Server() {
    const engine::JsonLine parser;  // makes what a simulation parses with, so that it goes after the server does
    auto opened = state::Database::open(":memory:");
    check(opened.has_value());
    database = *std::move(opened);
    engine::EngineOptions options;
    options.clock = &clock;
    options.seed = 1;
    options.max_cells = 10'000;
    options.sink = &notices;
    engine = std::make_unique<engine::Engine>(options);
    access = std::make_unique<service::Access>(*database, service::AccessOptions{}, clock);
    service.engine = engine.get();
    service.database = database.get();
    service.access = access.get();
    service.traffic = &traffic;
    service.notices = &notices;
    service.clock = &clock;
    service.wake = [] {};
    policies = std::make_unique<service::Policies>(service, std::vector<std::string>{});
    http = api::make_http_api(service, *policies, {});
    check(policies->start().ok());
    state::Database::TokenRequest request;
    request.role = state::Role::kAdmin;
    const auto made = database->create_token(request, "fuzz", clock.now());
    check(made.has_value());
    admin = "Bearer " + made->secret;
    peer.ip = "127.0.0.1";
    peer.loopback = true;
  }

  // Those who listen look at the engine, which goes before the notices do.
  ~Server() { notices.flush(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ManualClock clock{std::chrono::seconds{1'700'000'000}};
  std::unique_ptr<state::Database> database;
  observe::Traffic traffic;
  observe::Notices notices;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<service::Access> access;
  service::Service service;
  std::unique_ptr<service::Policies> policies;
  std::unique_ptr<api::HttpApi> http;
  net::Peer peer;
  std::string admin;
};

}  // namespace

// A byte for the method and the caller, a line with the target, a line for a header's value, and the body.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Server server;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto first = static_cast<unsigned char>(input[0]);
  std::string_view rest = input.substr(1);
  const auto line = [&rest] {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view taken = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return taken;
  };
  const std::string_view target = line();
  const std::string_view value = line();
  std::string body(rest);
  const std::size_t length = body.size();
  body.append(net::Session::kSlack, ' ');

  std::vector<net::Header> headers{{"Host", "localhost"},      {"X-Headgate-Agent", value}, {"X-Headgate-Cost", value},
                                   {"X-Original-URI", target}, {"X-Forwarded-For", value},  {"Accept", value},
                                   {"X-Request-Id", value}};
  if ((first & 8U) == 0) headers.push_back({"Authorization", server.admin});
  if ((first & 16U) != 0) headers.push_back({"Content-Type", value});
  if ((first & 32U) != 0) headers.push_back({"Cookie", value});
  net::HttpRequest request;
  request.method = static_cast<net::Method>(first & 7U);
  request.target = target;
  request.path = target.substr(0, target.find('?'));
  request.query = request.path.size() == target.size() ? std::string_view() : target.substr(request.path.size() + 1);
  request.headers = headers;
  request.body = std::string_view(body).substr(0, length);
  request.peer = &server.peer;
  request.now = server.clock.now();
  Reply reply;
  server.http->handle(request, reply);
  check(reply.answers == 1);
  server.clock.advance(std::chrono::milliseconds{10});
  (void)server.engine->poll();
  server.http->tick();
  return 0;
}

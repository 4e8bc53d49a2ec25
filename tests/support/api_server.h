// The whole HTTP API over a database in memory and a clock that is moved by hand; no sockets.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/http/http_api.h"
#include "service/settings.h"

namespace headgate::test {

using Json = nlohmann::ordered_json;

// What a handler has answered.
struct Answer {
  int status = 0;
  std::string content_type;
  std::string body;
  std::string headers;
  bool waits = false;  // it will be answered later
  std::unique_ptr<net::Session> session;

  [[nodiscard]] Json json() const {
    Json parsed = Json::parse(body, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << body;
    return parsed;
  }
  // The value of a header line; empty: none.
  [[nodiscard]] std::string header(const std::string& name) const {
    const std::size_t at = ("\r\n" + headers).find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 2;
    return headers.substr(begin, headers.find("\r\n", begin) - begin);
  }
};

class RecordingReply final : public net::HttpReply {
 public:
  class Later final : public net::LaterReply {
   public:
    explicit Later(std::shared_ptr<Answer> to) : answer_(std::move(to)) {}
    void send(const net::HttpAnswer& given) override {
      record(given, *answer_);
      recorded_ = true;
      sent_.set_value();
    }
    // Whether the answer may be read.
    [[nodiscard]] bool recorded() const noexcept { return recorded_; }
    // For what another thread answers. False: it has not for a long time.
    bool wait() { return sent_.get_future().wait_for(std::chrono::seconds{60}) == std::future_status::ready; }
    [[nodiscard]] bool abandoned() const noexcept override { return gone; }
    bool gone = false;

   private:
    std::shared_ptr<Answer> answer_;
    std::atomic<bool> recorded_{false};
    std::promise<void> sent_;
  };

  void send(const net::HttpAnswer& given) override {
    EXPECT_EQ(++calls, 1) << "answered twice";
    record(given, *answer);
  }
  std::shared_ptr<net::LaterReply> later() override {
    EXPECT_EQ(++calls, 1) << "answered twice";
    later_reply = std::make_shared<Later>(answer);
    return later_reply;
  }
  void take_over(std::string_view head, std::unique_ptr<net::Session> successor) override {
    EXPECT_EQ(++calls, 1) << "answered twice";
    answer->headers = head;
    answer->session = std::move(successor);
  }
  static void record(const net::HttpAnswer& given, Answer& to) {
    to.status = given.status;
    to.content_type = given.content_type;
    to.body = given.body;
    to.headers = given.headers;
  }

  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
  std::shared_ptr<Later> later_reply;
  int calls = 0;
};

struct ApiServerOptions {
  service::Auth auth = service::Auth::kLocal;
  std::vector<std::string> paths{};
  state::Database* database = nullptr;  // another server's, as after a restart
  api::HttpApiOptions http{};
};

class ApiServer {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  static constexpr Nanos kStart{std::chrono::seconds{1'700'000'000}};

  explicit ApiServer(ApiServerOptions options = {}) : clock(kStart) {
    if (options.database == nullptr) {
      auto opened = state::Database::open(":memory:");
      EXPECT_TRUE(opened.has_value());
      own_database = *std::move(opened);
      options.database = own_database.get();
    }
    engine::EngineOptions engine_options;
    engine_options.clock = &clock;
    engine_options.seed = 7;
    engine_options.sink = &notices;
    engine = std::make_unique<engine::Engine>(engine_options);
    service::AccessOptions access_options;
    access_options.auth = options.auth;
    access = std::make_unique<service::Access>(*options.database, access_options, clock);
    service.engine = engine.get();
    service.database = options.database;
    service.access = access.get();
    service.traffic = &traffic;
    service.notices = &notices;
    service.clock = &clock;
    service.wake = [this] { ++wakes; };
    policies = std::make_unique<service::Policies>(service, options.paths);
    http = api::make_http_api(service, *policies, std::move(options.http));
    started = policies->start();
    EXPECT_EQ(started.text(), "");
    EXPECT_TRUE(service::restore_settings(service).empty());
    admin = token(state::Role::kAdmin);
    peer.ip = "127.0.0.1";
    peer.loopback = true;
  }
  ~ApiServer() { notices.flush(); }
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  std::string token(state::Role role, const std::string& agent = {}) {
    state::Database::TokenRequest request;
    request.role = role;
    request.agent = agent;
    request.name = std::string("test ") + to_string(role);
    auto made = service.database->create_token(request, "test", clock.wall(clock.now()));
    EXPECT_TRUE(made.has_value());
    return made->secret;
  }

  // Without any token.
  Answer call(net::Method method, std::string_view target, std::string_view body = {}, const Headers& headers = {}) {
    RecordingReply reply;
    run(method, target, body, headers, reply);
    later = reply.later_reply;
    last = reply.answer;
    // What reads the disk or policies, and large batches, is answered by another thread, soon.
    const bool soon = target.starts_with("/api/admin/audit") || target.starts_with("/v1/check/batch") ||
                      (target.starts_with("/api/admin/policies") && !target.ends_with("/simulate"));
    if (later != nullptr && soon) {
      EXPECT_TRUE(later->wait());
    }
    Answer answer;
    answer.waits = later != nullptr && !later->recorded();
    if (answer.waits) return answer;  // another thread may be writing it
    answer.status = last->status;
    answer.content_type = last->content_type;
    answer.body = last->body;
    answer.headers = last->headers;
    answer.session = std::move(last->session);
    return answer;
  }
  // As the admin.
  Answer manage(net::Method method, std::string_view target, std::string_view body = {}, Headers headers = {}) {
    headers.emplace_back("Authorization", "Bearer " + admin);
    return call(method, target, body, headers);
  }
  Answer get(std::string_view target) { return manage(net::Method::kGet, target); }
  Answer put(std::string_view target, std::string_view body) { return manage(net::Method::kPut, target, body); }
  Answer post(std::string_view target, std::string_view body) { return manage(net::Method::kPost, target, body); }
  Answer remove(std::string_view target) { return manage(net::Method::kDelete, target); }
  Answer check(std::string_view body, const Headers& headers = {}) {
    return call(net::Method::kPost, "/v1/check", body, headers);
  }
  // Puts a document in force.
  void load(const std::string& yaml) {
    const Answer answer =
        manage(net::Method::kPut, "/api/admin/policies", yaml, {{"Content-Type", "application/yaml"}});
    ASSERT_EQ(answer.status, 200) << answer.body;
  }

  void run(net::Method method, std::string_view target, std::string_view body, const Headers& headers,
           RecordingReply& reply) {
    std::vector<net::Header> borrowed{{"Host", "127.0.0.1:7070"}};
    for (const auto& [name, value] : headers) borrowed.push_back({name, value});
    const std::string padded = std::string(body) + std::string(net::Session::kSlack, ' ');
    net::HttpRequest request;
    request.method = method;
    request.target = target;
    request.path = target.substr(0, target.find('?'));
    request.query = request.path.size() == target.size() ? std::string_view() : target.substr(request.path.size() + 1);
    request.headers = borrowed;
    request.body = std::string_view(padded).substr(0, body.size());
    request.peer = &peer;
    request.now = clock.now();
    http->handle(request, reply);
  }

  ManualClock clock;
  std::unique_ptr<state::Database> own_database;
  observe::Traffic traffic;
  observe::Notices notices;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<service::Access> access;
  service::Service service;
  std::unique_ptr<service::Policies> policies;
  std::unique_ptr<api::HttpApi> http;
  service::Policies::Changed started;
  net::Peer peer;
  std::string admin;
  int wakes = 0;
  std::shared_ptr<RecordingReply::Later> later;
  std::shared_ptr<Answer> last;  // where an answer that came later is
};

}  // namespace headgate::test

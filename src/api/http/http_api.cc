// The way of a request to its handler: the two that matter for speed first, then by the table.
#include "api/http/http_api.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "api/http/call.h"
#include "api/http/event_feed.h"
#include "api/http/routes.h"
#include "api/http/simulation_runner.h"
#include "base/background.h"
#include "base/hash.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "observe/log.h"
#include "service/alerts.h"
#include "service/emergency_keeper.h"
#include "service/factor_audit.h"
#include "service/quotas.h"
#include "service/waiters.h"

namespace headgate::api {
namespace {

using net::Method;

// Tells whether an answer has been given, so that a handler that fails before can still get one.
class Answering final : public net::HttpReply {
 public:
  explicit Answering(net::HttpReply& reply) : reply_(reply) {}
  void send(const net::HttpAnswer& answer) override {
    answered_ = true;
    status_ = answer.status;
    reply_.send(answer);
  }
  std::shared_ptr<net::LaterReply> later() override {
    answered_ = true;
    return reply_.later();
  }
  void take_over(std::string_view head, std::unique_ptr<net::Session> successor) override {
    answered_ = true;
    reply_.take_over(head, std::move(successor));
  }
  [[nodiscard]] bool answered() const noexcept { return answered_; }
  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  net::HttpReply& reply_;
  bool answered_ = false;
  int status_ = 0;
};

// Whether the path is of that pattern, and what stands for its braces then.
bool matches(std::string_view pattern, std::string_view path, std::string_view* part = nullptr) noexcept {
  const std::size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == path;
  if (part == nullptr) return false;
  const std::string_view rest = pattern.substr(pattern.find('}') + 1);
  if (path.size() <= open + rest.size() || path.substr(0, open) != pattern.substr(0, open)) return false;
  if (path.substr(path.size() - rest.size()) != rest) return false;
  *part = path.substr(open, path.size() - open - rest.size());
  return part->find('/') == std::string_view::npos;
}

struct Found {
  const Route* route = nullptr;  // nullptr: no such path, or not by that method
  std::string_view part;
  std::string allow;  // without a route: the methods that the path has; empty: there is no such path
};

// Of the paths without a part, most of what is asked for.
const Route* find_plain(Method method, std::string_view path) {
  using Key = std::pair<std::string_view, Method>;
  static const auto kPlain = [] {
    absl::flat_hash_map<Key, const Route*> all;
    for (const Route& route : routes()) {
      if (std::string_view(route.path).find('{') == std::string_view::npos) {
        all.emplace(Key{route.path, route.method}, &route);
      }
    }
    return all;
  }();
  const auto found = kPlain.find(Key{path, method});
  return found == kPlain.end() ? nullptr : found->second;
}

Found find(Method method, std::string_view path) {
  Found found;
  const Method wanted = method == Method::kHead ? Method::kGet : method;
  found.route = find_plain(wanted, path);
  if (found.route != nullptr) return found;
  const auto look = [&](bool braces) {
    for (const Route& route : routes()) {
      std::string_view part;
      if (!matches(route.path, path, braces ? &part : nullptr)) continue;
      if (!found.allow.empty()) found.allow += ", ";
      found.allow += to_string(route.method);
      if (route.method == Method::kGet) found.allow += ", HEAD";
      if (route.method != wanted) continue;
      found.route = &route;
      found.part = part;
    }
  };
  look(false);
  if (found.allow.empty()) look(true);
  if (!found.allow.empty()) found.allow += ", OPTIONS";
  return found;
}

std::string no_such_path(std::string_view path) {
  std::vector<std::string> paths;
  for (const Route& route : routes()) paths.emplace_back(route.path);
  return fmt::format("there is nothing at {}{}", base::shortened(path, 100), base::did_you_mean(path, paths));
}

// It need not be hard to guess, only to be told from others: so the system is asked once for each thread.
std::string new_request_id() {
  thread_local base::Hash128 last{base::random_seed(), base::random_seed()};
  last = base::mix(last, {1, 0});
  return fmt::format("{:016x}", last.low);
}

// A batch that is refused at these bounds is answered with 503.
base::Background::Bounds bounds_of_batches() {
  constexpr std::size_t kMostThreads = 4;
  constexpr std::size_t kMostBatches = 1'024;
  constexpr std::size_t kMostBytes = 64 << 20;
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, kMostThreads);
  return {.threads = threads, .queued = kMostBatches, .bytes = kMostBytes};
}

std::shared_ptr<service::Waiters> made_waiters(service::Service& service) {
  if (service.waiters == nullptr) service.waiters = std::make_shared<service::Waiters>();
  return service.waiters;
}

class Routing final : public HttpApi {
 public:
  Routing(service::Service& service, service::Policies& policies, HttpApiOptions options)
      : context_{service,
                 policies,
                 std::move(options),
                 std::make_shared<EventFeed>(),
                 std::make_shared<service::Alerts>(),
                 std::make_shared<service::EmergencyKeeper>(service),
                 made_waiters(service),
                 std::make_shared<SimulationRunner>(),
                 std::make_shared<base::Background>(),
                 std::make_shared<base::Background>(),
                 std::make_shared<base::Background>(),
                 std::make_shared<base::Background>(),
                 std::make_shared<base::Background>(bounds_of_batches())},
        factor_audit_(std::make_shared<service::FactorAudit>(service)) {
    if (service.notices != nullptr) {
      service.notices->add(context_.keeper);
      service.notices->add(factor_audit_);
      service.notices->add(context_.alerts);
      service.notices->add(context_.feed);
    }
    if (context_.options.started == Nanos{0}) context_.options.started = service.clock->wall(service.clock->now());
  }

  ~Routing() override {
    context_.keeper->detach();
    factor_audit_->detach();
  }
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  void tick() override {
    context_.waiters->sweep(*context_.service.engine);
    // Those behind them in line may have room now.
    if (context_.service.engine->queue().revoke_invalid() > 0) context_.service.wake();
    if (context_.service.quotas != nullptr) context_.service.quotas->tick();
  }

  void handle(const net::HttpRequest& request, net::HttpReply& reply) override {
    Answering answering(reply);
    answer_request(request, answering, reply);
    reply.standing = answering.standing;
  }

  // A caller that is refused gets its answer before the body is read. Open endpoints take no body.
  [[nodiscard]] bool admits(const net::HttpRequest& head, net::HttpReply& reply) override {
    const Found found = find(head.method, head.path);
    if (found.route == nullptr) {
      Answering answering(reply);
      by_table(head, answering);
      return false;
    }
    if (found.route->need == Need::kOpen) {
      send_error(head, reply, {413, "payload_too_large", "this path takes no body"});
      return false;
    }
    const service::Admission admission = admit(*found.route, head);
    if (admission.refusal) {
      refuse(head, reply, *admission.refusal);
      return false;
    }
    reply.standing = standing_of(admission.caller);
    return true;
  }

 private:
  void answer_request(const net::HttpRequest& request, Answering& answering, net::HttpReply& reply) {
    try {
      if (request.method == Method::kPost && request.path == "/v1/check")
        return check_one(context_, request, answering);
      if (request.path == "/v1/gate" && (request.method == Method::kGet || request.method == Method::kPost)) {
        return check_gate(context_, request, answering);
      }
      by_table(request, answering);
    } catch (const std::bad_alloc&) {
      throw;  // closes the connection: there may be no memory to say anything
    } catch (const std::exception& error) {
      observe::log(observe::LogLevel::kError, "request failed",
                   {{"path", request.path}, {"error", std::string_view(error.what())}});
      if (answering.answered()) return;
      send_error(request, reply, {500, "internal", "the request could not be handled; the log says why"});
    }
  }

  void by_table(const net::HttpRequest& request, Answering& reply) {
    const std::string_view given = sane_request_id(request);
    const std::string request_id = given.empty() ? new_request_id() : std::string(given);
    const std::string id_line = fmt::format("X-Request-Id: {}\r\n", request_id);
    const service::Caller unknown;
    Call first{context_, request, reply, unknown, {}, request_id};
    const Found found = find(request.method, request.path);
    if (found.route != nullptr) {
      take(*found.route, found.part, first, id_line);
    } else if (found.allow.empty()) {
      first.fail(404, "not_found", no_such_path(request.path));
    } else {
      const std::string allow = fmt::format("Allow: {}\r\n", found.allow);
      if (request.method == Method::kOptions) {
        net::HttpAnswer answer;
        answer.status = 204;
        answer.content_type = {};
        answer.headers = allow;
        first.send(answer);
      } else {
        first.fail(405, "method_not_allowed",
                   fmt::format("{} takes {}, got {}", base::shortened(request.path, 100), found.allow,
                               to_string(request.method)),
                   allow);
      }
    }
    if (observe::logs(observe::LogLevel::kDebug)) {
      observe::log(observe::LogLevel::kDebug, "request",
                   {{"method", to_string(request.method)},
                    {"path", request.path},
                    {"status", std::int64_t{reply.status()}},
                    {"request_id", std::string_view(request_id)}});
    }
  }

  [[nodiscard]] service::Admission admit(const Route& route, const net::HttpRequest& request) const {
    const service::Access& access = *context_.service.access;
    if (route.need == Need::kOpen) return {};
    const service::AccessRequest asked = access_request(request);
    switch (route.need) {
      case Need::kOpen: break;
      case Need::kAsk: return access.asks(asked);
      case Need::kView: return access.manages(asked, false);
      case Need::kChange: return access.manages(asked, true);
      case Need::kQuotas: return access.uses_quotas(asked, request.method != Method::kGet);
      case Need::kMetrics:
        if (context_.options.metrics_open_on_loopback) return access.reads_metrics(asked);
        return access.manages(asked, false);
    }
    return {};
  }

  void take(const Route& route, std::string_view part, const Call& first, std::string_view id_line) {
    const net::HttpRequest& request = first.request;
    const service::Admission admission = admit(route, request);
    if (admission.refusal) return refuse(request, first.reply, *admission.refusal, id_line);
    if (route.need != Need::kOpen) first.reply.standing = standing_of(admission.caller);
    const std::string_view type = request.header("content-type");
    if (!request.body.empty() && !type.empty() && !is_json_type(type) && !(route.yaml && is_yaml_type(type))) {
      return first.fail(415, "unsupported_media_type",
                        fmt::format("Content-Type must be application/json{}, got \"{}\"",
                                    route.yaml ? " or application/yaml" : "", base::shortened(type, 100)));
    }
    Call call{context_, request, first.reply, admission.caller, {}, first.request_id};
    if (!part.empty() && !net::percent_decoded(part, false, call.id)) {
      return call.fail(400, "invalid_request",
                       fmt::format("the percent-encoding of \"{}\" is broken", base::shortened(part, 100)));
    }
    route.handle(call);
  }

  Context context_;
  std::shared_ptr<service::FactorAudit> factor_audit_;
};

}  // namespace

void handle_websocket(Call& call) {
  if (call.context.options.websocket) {
    return call.context.options.websocket(call.request, call.reply, call.caller);
  }
  call.fail(404, "not_found", "this server has no WebSocket");
}

std::unique_ptr<HttpApi> make_http_api(service::Service& service, service::Policies& policies, HttpApiOptions options) {
  return std::make_unique<Routing>(service, policies, std::move(options));
}

}  // namespace headgate::api

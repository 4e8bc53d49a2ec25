// POST /v1/check, /v1/check/batch, and leases.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "api/asking.h"
#include "api/handoff.h"
#include "api/limit_headers.h"
#include "engine/check_json.h"
#include "engine/line_fields.h"

namespace headgate::api {
namespace {

constexpr std::size_t kMostChecks = 1'000;  // of a batch

engine::CheckReader& reader() {
  thread_local engine::CheckReader of_this_thread;
  return of_this_thread;
}

void answer_check(const engine::CheckDecision& decision, const Asked& asked, Buffers& buffers,
                  net::HttpAnswer& answer) {
  if (decision.why == engine::Why::kInvalid) {
    answer.status = 400;
    if (asked.problem_json) {
      answer.content_type = "application/problem+json";
      buffers.body = text_of(Json{{"type", "about:blank"},
                                  {"title", title_of(400)},
                                  {"status", 400},
                                  {"detail", decision.problem},
                                  {"error", "invalid_check"}});
    } else {
      engine::append_json(decision, buffers.body);
    }
  } else {
    engine::append_json(decision, buffers.body);
    append_limit_headers(decision, buffers.headers);
  }
  append_request_id(asked.request_id, buffers.headers);
  answer.body = buffers.body;
  answer.headers = buffers.headers;
}

std::string error_json(std::string_view code, std::string_view message) {
  std::string body = "{\"error\":";
  engine::append_json_text(code, body);
  body += ",\"message\":";
  engine::append_json_text(message, body);
  body += '}';
  return body;
}

// The answer to a batch: decisions in the order of its checks, whichever comes first. A check that a remote store must
// be asked about leaves a gap in the text until it is answered, which the store's deadline bounds; all of them are
// asked at once. Gaps are filled by other threads, each its own; the rest is the handler's.
class Batch {
 public:
  explicit Batch(const Call& call) : handoff_(call) { text_ = "{\"decisions\":["; }

  // Where the next decision goes.
  [[nodiscard]] std::string& next() {
    if (std::exchange(any_, true)) text_ += ',';
    return text_;
  }
  // The next decision comes later: it goes here, and then part_done() is called.
  [[nodiscard]] std::string& leave_gap() {
    parts_.fetch_add(1, std::memory_order_relaxed);
    return gaps_.emplace_back(Gap{text_.size(), {}}).text;
  }
  // A gap is filled, or the handler has written all that it has.
  void part_done() {
    if (parts_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    std::string body;
    std::size_t from = 0;
    for (const Gap& gap : gaps_) {
      body.append(text_, from, gap.at - from).append(gap.text);
      from = gap.at;
    }
    if (gaps_.empty()) {
      body = std::move(text_);
    } else {
      body.append(text_, from);
    }
    body += "]}";
    handoff_.answer({.body = std::move(body), .headers = {}});
  }
  void give(net::HttpReply& reply) { handoff_.give(reply); }

 private:
  struct Gap {
    std::size_t at;
    std::string text;
  };
  Handoff handoff_;
  std::string text_;
  std::deque<Gap> gaps_;               // never moves what it holds
  std::atomic<std::size_t> parts_{1};  // gaps, and the handler
  bool any_ = false;
};
// The dashboard's own question: no limit holds for it.
void answer_exempt(Context& context, const net::HttpRequest& request, net::HttpReply& reply, const Asked& asked) {
  engine::CheckDecision decision;
  decision.wall = context.service.clock->wall(request.now);
  decision.allowed = true;
  decision.why = engine::Why::kExempt;
  Buffers& mine = buffers();
  mine.clear();
  net::HttpAnswer answer;
  answer_check(decision, asked, mine, answer);
  reply.send(answer);
}

// The owner that leases are asked for: the agent that the caller is bound to.
std::string_view owner_of(const Call& call) { return call.caller.agent; }

Json settled_json(const engine::Settled& settled) {
  Json costs = Json::object();
  for (const auto& [unit, amount] : settled.costs) costs[unit] = number_json(amount);
  return {{"costs", std::move(costs)}, {"overrun", number_json(settled.overrun)}, {"again", settled.again}};
}

}  // namespace

Buffers& buffers() {
  thread_local Buffers of_this_thread;
  return of_this_thread;
}

void count_error(const Service& service, observe::Protocol protocol, Nanos now) {
  if (service.traffic == nullptr) return;
  observe::Answered answered;
  answered.protocol = protocol;
  answered.allowed = false;
  answered.error = true;
  service.traffic->add(answered, service.clock->wall(now));
}

void check_one(Context& context, const net::HttpRequest& request, net::HttpReply& reply) {
  const Admission admission = context.service.access->asks(request);
  if (admission.refusal) return refuse(request, reply, *admission.refusal);
  reply.standing = standing_of(admission.caller);
  const std::string_view type = request.header("content-type");
  if (!type.empty() && type != "application/json" && !request.body.empty() && !is_json_type(type)) {
    return send_error(request, reply, 415, "unsupported_media_type",
                      fmt::format("Content-Type must be application/json, got \"{}\"", type));
  }
  engine::CheckReader& json = reader();
  if (const Result<void> read = json.read(request.body); !read) {
    count_error(context.service, observe::Protocol::kHttp, request.now);
    return send_error(request, reply, 400, "invalid_check", read.error().message);
  }
  Check check = json.check();
  if (check.channel.empty()) check.channel = "http";
  if (const auto refusal = context.service.access->believe(admission.caller, request.peer, check)) {
    return refuse(request, reply, *refusal);
  }
  const Asked asked{sane_request_id(request), wants_problem_json(request)};
  if (admission.caller.is_dashboard()) [[unlikely]]
    return answer_exempt(context, request, reply, asked);
  ask_and_answer<answer_check>(context, observe::Protocol::kHttp, request, reply, check, asked);
}

void handle_check(Call& call) { check_one(call.context, call.request, call.reply); }

void handle_batch(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"checks"});
  if (!body) return;
  const auto checks = body->find("checks");
  if (checks == body->end() || !checks->is_array()) {
    return call.fail(400, "invalid_request", "checks must be a list of checks");
  }
  if (checks->empty() || checks->size() > kMostChecks) {
    return call.fail(400, "invalid_request",
                     fmt::format("checks must be 1 to {} checks, got {}", kMostChecks, checks->size()));
  }
  const auto batch = std::make_shared<Batch>(call);
  for (const Json& each : *checks) {
    std::string& out = batch->next();
    // As text once more, so that one reader decides what a check is.
    const std::string text = text_of(each);
    engine::CheckReader& json = reader();
    if (const Result<void> read = json.read(text); !read) {
      count_error(call.service(), observe::Protocol::kHttp, call.request.now);
      out += error_json("invalid_check", read.error().message);
      continue;
    }
    Check check = json.check();
    if (check.channel.empty()) check.channel = "http";
    if (const auto refusal = call.service().access->believe(call.caller, call.request.peer, check)) {
      out += error_json(refusal->code, refusal->message);
      continue;
    }
    engine::CheckDecision decision;
    const auto later = [&]() -> engine::Engine::Done {
      return [batch, &gap = batch->leave_gap()](const engine::CheckDecision& decided) {
        engine::append_json(decided, gap);
        batch->part_done();
      };
    };
    const std::uint64_t asked =
        ask_no_line(call.service(), observe::Protocol::kHttp, call.request.now, check, decision, later);
    if (asked == 0) engine::append_json(decision, out);
  }
  batch->part_done();
  batch->give(call.reply);
}

void settle_lease(Call& call) {
  engine::JsonLine json;
  engine::LineFields fields;
  constexpr auto kAllowed = engine::set_of(engine::Field::kCost);
  if (const Result<void> read = json.read(call.request.body, kAllowed, "a settlement", fields); !read) {
    return call.fail(400, "invalid_request", read.error().message);
  }
  if (!fields.has(engine::Field::kCost)) {
    return call.fail(400, "invalid_request", "cost is needed: a number, or an object by unit");
  }
  const Result<engine::Settled> settled = call.service().engine->settle(call.id, owner_of(call), fields.check.costs);
  if (!settled) return call.fail(settled.error());
  if (call.service().wake) call.service().wake();
  call.send(settled_json(*settled));
}

void release_lease(Call& call) {
  const Result<engine::Settled> released = call.service().engine->release(call.id, owner_of(call));
  if (!released) return call.fail(released.error());
  if (call.service().wake) call.service().wake();
  call.send(settled_json(*released));
}

void renew_lease(Call& call) {
  const Result<Nanos> until = call.service().engine->renew(call.id, owner_of(call));
  if (!until) return call.fail(until.error());
  call.send(Json{{"lease", call.id}, {"expires_at", millis(*until)}});
}

}  // namespace headgate::api

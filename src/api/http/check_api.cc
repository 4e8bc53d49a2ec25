// POST /v1/check, /v1/check/batch, and leases.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/http/asking.h"
#include "api/http/handoff.h"
#include "api/http/limit_headers.h"
#include "api/http/routes.h"
#include "engine/check_json.h"
#include "engine/line_fields.h"

namespace headgate::api {
namespace {

constexpr std::size_t kMostChecks = 1'000;  // of a batch
// What batches may take of an io thread in one turn. The others are read and judged in the background, so that requests
// of other connections, such as the one that turns the emergency throttle on, do not wait for them.
constexpr std::size_t kMostAtOnce = 64;             // checks
constexpr std::size_t kMostBytesAtOnce = 16 << 10;  // of bodies

// What batches have taken of this thread since `at`, the time of the turn: pipelined requests share it.
struct Turn {
  Nanos at{-1};
  std::size_t checks = 0;
  std::size_t bytes = 0;

  static Turn& of(Nanos now) {
    thread_local Turn turn;
    if (turn.at != now) turn = {now};
    return turn;
  }
};

engine::CheckReader& reader() {
  thread_local engine::CheckReader of_this_thread;
  return of_this_thread;
}

void answer_check(const engine::CheckDecision& decision, const ReplyContext& asked, Buffers& buffers,
                  net::HttpAnswer& answer) {
  if (decision.why == engine::Why::kInvalid) {
    return answer_error({400, "invalid_check", decision.problem}, asked, buffers, answer);
  }
  engine::append_json(decision, buffers.body);
  append_limit_headers(decision, buffers.headers);
  append_request_id(asked.request_id, buffers.headers);
  answer.body = buffers.body;
  answer.headers = buffers.headers;
}

// One batch: its checks, and the text of its answer, with decisions in the order of the checks. A check that a remote
// store must be asked about leaves a gap in the text until it is answered, which the store's deadline bounds; all of
// them are asked at once. Gaps are filled by other threads, each its own; the rest belongs to the thread that judges.
// It uses nothing of its call once that is over.
class Batch : public std::enable_shared_from_this<Batch> {
 public:
  explicit Batch(const Call& call)
      : service_(call.service()),
        caller_(call.caller),
        valid_(call.service().access->validity_of(call.caller)),
        arrived_(call.request.now),
        handoff_(call) {
    if (call.request.peer != nullptr) peer_ = *call.request.peer;
  }

  // False: it has been answered with 400.
  [[nodiscard]] bool read(std::string_view body) {
    Result<Json> fields = fields_of(body, std::array<std::string_view, 1>{"checks"});
    if (!fields) return refuse(fields.error().message);
    const auto checks = fields->find("checks");
    if (checks == fields->end() || !checks->is_array()) return refuse("checks must be a list of checks");
    if (checks->empty() || checks->size() > kMostChecks) {
      return refuse(fmt::format("checks must be 1 to {} checks, got {}", kMostChecks, checks->size()));
    }
    checks_ = std::move(*checks);
    return true;
  }
  [[nodiscard]] std::size_t size() const noexcept { return checks_.size(); }

  // Judges all checks at the time of arrival.
  void judge_now() {
    for (const Json& check : checks_) judge(check, arrived_);
    part_done();
  }
  // The same in the background, at the present time: stops when the client has gone, or the token has ended.
  void judge_late() {
    Nanos now = arrived_;
    for (std::size_t i = 0; i < checks_.size(); ++i) {
      if (i % kMostAtOnce == 0) {
        if (handoff_.abandoned()) return;
        if (valid_ && !valid_()) return handoff_.fail(401, "unauthorized", kEnded);
        now = std::max(now, service_.clock->now());
      }
      judge(checks_[i], now);
    }
    part_done();
  }
  void fail(int status, std::string_view code, std::string_view message, std::string_view headers = {}) {
    handoff_.fail(status, code, message, headers);
  }
  void give(net::HttpReply& reply) { handoff_.give(reply); }

 private:
  struct Gap {
    std::size_t at;
    std::string text;
  };
  static constexpr std::string_view kEnded = "The token has expired or was revoked while the batch waited";

  bool refuse(std::string_view message) {
    handoff_.fail(400, "invalid_request", message);
    return false;
  }
  void judge(const Json& each, Nanos now) {
    if (std::exchange(any_, true)) text_ += ',';
    // As text once more, so that one reader decides what a check is.
    const std::string text = text_of(each);
    engine::CheckReader& json = reader();
    if (const Result<void> read = json.read(text); !read) {
      count_error(service_, observe::Protocol::kHttp, now);
      append_problem({400, "invalid_check", read.error().message});
      return;
    }
    Check check = json.check();
    if (check.channel.empty()) check.channel = "http";
    if (const auto refusal = service_.access->believe(caller_, peer_view(), check)) {
      append_problem({refusal->status, refusal->code, refusal->message});
      return;
    }
    engine::CheckDecision decision;
    const auto later = [&]() -> engine::Engine::Done {
      return [batch = shared_from_this(), &gap = leave_gap()](const engine::CheckDecision& decided) {
        engine::append_json(decided, gap);
        batch->part_done();
      };
    };
    const std::uint64_t asked = service::ask(service_, observe::Protocol::kHttp,
                                             {now, check, {caller_.owner}, engine::OnDenial::kAnswer}, decision, later);
    if (asked == 0) engine::append_json(decision, text_);
  }
  [[nodiscard]] std::optional<service::PeerView> peer_view() const {
    return peer_ ? std::optional(view_of(*peer_)) : std::nullopt;
  }
  void append_problem(const net::HttpError& error) { net::append_error(error, net::ErrorForm::kPlain, text_); }
  // The next decision comes later: it goes here, and then part_done() is called.
  [[nodiscard]] std::string& leave_gap() {
    parts_.fetch_add(1, std::memory_order_relaxed);
    return gaps_.emplace_back(Gap{text_.size(), {}}).text;
  }
  // A gap is filled, or all checks have been judged.
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

  service::Service& service_;
  const service::Caller caller_;
  const std::function<bool()> valid_;  // none: the caller's credential never ends
  const Nanos arrived_;
  std::optional<net::Peer> peer_;
  Handoff handoff_;
  Json checks_;
  std::string text_ = "{\"decisions\":[";
  std::deque<Gap> gaps_;               // never moves what it holds
  std::atomic<std::size_t> parts_{1};  // gaps, and the thread that judges
  bool any_ = false;
};

// The dashboard's own question: no limit holds for it.
void answer_exempt(Context& context, const net::HttpRequest& request, net::HttpReply& reply,
                   const ReplyContext& asked) {
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

void count_error(const service::Service& service, observe::Protocol protocol, Nanos now) {
  if (service.traffic == nullptr) return;
  observe::Answered answered;
  answered.protocol = protocol;
  answered.allowed = false;
  answered.error = true;
  service.traffic->add(answered, service.clock->wall(now));
}

void answer_error(const net::HttpError& error, const ReplyContext& asked, Buffers& buffers, net::HttpAnswer& answer,
                  std::string_view members) {
  answer.status = error.status;
  answer.content_type = net::append_error(error, asked.form, buffers.body, members);
  append_request_id(asked.request_id, buffers.headers);
  answer.body = buffers.body;
  answer.headers = buffers.headers;
}

void answer_revoked(const engine::CheckDecision& decision, const ReplyContext& asked, Buffers& buffers,
                    net::HttpAnswer& answer) {
  buffers.headers += kBearerChallenge;
  answer_error({401, "unauthorized", decision.reason()}, asked, buffers, answer);
}

void check_one(Context& context, const net::HttpRequest& request, net::HttpReply& reply) {
  const service::AccessRequest from = access_request(request);
  const service::Admission admission = context.service.access->asks(from);
  if (admission.refusal) return refuse(request, reply, *admission.refusal);
  reply.standing = standing_of(admission.caller);
  const std::string_view type = request.header("content-type");
  if (!type.empty() && type != "application/json" && !request.body.empty() && !is_json_type(type)) {
    const std::string message = fmt::format("Content-Type must be application/json, got \"{}\"", type);
    return send_error(request, reply, {415, "unsupported_media_type", message});
  }
  engine::CheckReader& json = reader();
  if (const Result<void> read = json.read(request.body); !read) {
    count_error(context.service, observe::Protocol::kHttp, request.now);
    return send_error(request, reply, {400, "invalid_check", read.error().message});
  }
  Check check = json.check();
  if (check.channel.empty()) check.channel = "http";
  if (const auto refusal = context.service.access->believe(admission.caller, from.peer, check)) {
    return refuse(request, reply, *refusal);
  }
  const ReplyContext asked{sane_request_id(request), net::error_form_of(request), &admission.caller};
  if (admission.caller.is_dashboard()) [[unlikely]]
    return answer_exempt(context, request, reply, asked);
  const engine::Account account{admission.caller.owner};
  ask_and_answer<answer_check>(context, observe::Protocol::kHttp,
                               {request.now, check, account, engine::OnDenial::kQueue}, reply, asked);
}

void handle_check(Call& call) { check_one(call.context, call.request, call.reply); }

void handle_batch(Call& call) {
  const std::string_view body = call.request.body;
  const auto batch = std::make_shared<Batch>(call);
  Turn& turn = Turn::of(call.request.now);
  const bool small = (turn.bytes += body.size()) <= kMostBytesAtOnce;
  if (small) {
    if (!batch->read(body)) return batch->give(call.reply);
    if ((turn.checks += batch->size()) <= kMostAtOnce) {
      batch->judge_now();
      return batch->give(call.reply);
    }
  }
  batch->give(call.reply);
  const bool taken = call.context.batches->run(
      [batch, unread = small ? std::string() : std::string(body)] {
        try {
          if (unread.empty() || batch->read(unread)) batch->judge_late();
        } catch (const std::exception& error) {
          batch->fail(500, "internal", error.what());
        }
      },
      body.size());
  if (!taken) {
    batch->fail(503, "too_busy", "too many large batches wait already; try again in a moment", "Retry-After: 1\r\n");
  }
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
  const Result<engine::Settled> settled =
      call.service().engine->holds().settle(call.id, owner_of(call), fields.check.costs);
  if (!settled) return call.fail(settled.error());
  if (call.service().wake) call.service().wake();
  call.send(settled_json(*settled));
}

void release_lease(Call& call) {
  const Result<engine::Settled> released = call.service().engine->holds().release(call.id, owner_of(call));
  if (!released) return call.fail(released.error());
  if (call.service().wake) call.service().wake();
  call.send(settled_json(*released));
}

void renew_lease(Call& call) {
  const Result<Nanos> until = call.service().engine->holds().renew(call.id, owner_of(call));
  if (!until) return call.fail(until.error());
  call.send(Json{{"lease", call.id}, {"expires_at", millis(*until)}});
}

}  // namespace headgate::api

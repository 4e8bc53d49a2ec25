// /api/quotas: asking, recording, how a user stands, and the line of those who wait.
#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/http/aside.h"
#include "api/http/handoff.h"
#include "api/http/limit_headers.h"
#include "api/http/quota_calls.h"
#include "api/http/quota_headers.h"
#include "base/utf8.h"
#include "engine/check_json.h"

namespace headgate::api {

using quota::Amount;
using quota::kPeriodNames;
using quota::kPeriods;

namespace {

constexpr std::size_t kMostRunBytes = 64;
constexpr std::int64_t kLongestWaitMs = std::int64_t{24} * 3'600'000;
constexpr std::size_t kMostShown = 200;  // of the line
constexpr std::size_t kMostBody =
    64 << 10;  // of a check or a record, which are parsed by the thread that serves connections

std::string shown(const Json& json) { return base::shortened(text_of(json), 60); }

// Fields of a body, one after the other; the first that is wrong is answered with 400, and nothing is read after it.
class Fields {
 public:
  Fields(const Call& call, const Json& body) : call_(call), body_(body) {}

  void text(std::string_view name, std::string& out, std::size_t most = kMaxNameBytes) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return wrong(name, "text", *field);
    out = field->get<std::string>();
    if (out.size() > most || !(out.empty() || base::is_plain_text(out))) {
      bad_ = true;
      call_.fail(400, "invalid_request",
                 fmt::format("{} must be at most {} bytes of UTF-8 without control characters", name, most));
    }
  }
  void number(std::string_view name, double& out, double least, double most) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_number() || !(*field >= least && *field <= most)) {
      return wrong(name, fmt::format("a number from {:g} to {:g}", least, most), *field);
    }
    out = field->get<double>();
  }
  void whole(std::string_view name, std::int64_t& out, Range range) {
    const Json* field = find(name);
    if (field == nullptr) return;
    // JSON compares what only an unsigned number can hold as if it were a signed one.
    const bool huge = field->is_number_unsigned() && field->get<std::uint64_t>() > std::uint64_t{1} << 62;
    if (!field->is_number_integer() || huge || !(*field >= range.least && *field <= range.most)) {
      return wrong(name, fmt::format("a whole number from {} to {}", range.least, range.most), *field);
    }
    out = field->get<std::int64_t>();
  }
  void boolean(std::string_view name, bool& out) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return wrong(name, "true or false", *field);
    out = field->get<bool>();
  }
  void need(std::string_view name, const std::string& value) {
    if (bad_ || !value.empty()) return;
    bad_ = true;
    call_.fail(400, "invalid_request", fmt::format("{} is needed", name));
  }
  void fail(std::string_view message) {
    if (bad_) return;
    bad_ = true;
    call_.fail(400, "invalid_request", message);
  }
  [[nodiscard]] bool good() const noexcept { return !bad_; }

 private:
  const Json* find(std::string_view name) const {
    if (bad_) return nullptr;
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  void wrong(std::string_view name, std::string_view what, const Json& got) {
    bad_ = true;
    call_.fail(400, "invalid_request", fmt::format("{} must be {}, got {}", name, what, shown(got)));
  }

  const Call& call_;
  const Json& body_;
  bool bad_ = false;
};

Json amount_json(Amount amount) { return amount.unlimited() ? Json() : Json(amount.value); }

std::int64_t millis_up(Nanos span) { return span == kNever ? -1 : (span.count() + 999'999) / 1'000'000; }

// One JSON object, a field after the other: a check is answered too often to have a tree built for it.
class ObjectText {
 public:
  ObjectText& text(std::string_view name, std::string_view value) {
    key(name);
    engine::append_json_text(value, out_);
    return *this;
  }
  ObjectText& text_or_null(std::string_view name, std::string_view value) {
    return value.empty() ? null(name) : text(name, value);
  }
  ObjectText& number(std::string_view name, std::int64_t value) {
    key(name);
    fmt::format_to(std::back_inserter(out_), FMT_COMPILE("{}"), value);
    return *this;
  }
  ObjectText& number_or_null(std::string_view name, std::optional<std::int64_t> value) {
    return value ? number(name, *value) : null(name);
  }
  ObjectText& amount(std::string_view name, Amount value) {
    return value.unlimited() ? null(name) : number(name, value.value);
  }
  ObjectText& number_of(std::string_view name, double value) {
    key(name);
    engine::append_json_number(value, out_);
    return *this;
  }
  ObjectText& boolean(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  ObjectText& null(std::string_view name) { return raw(name, "null"); }
  ObjectText& object(std::string_view name, ObjectText&& inner) { return raw(name, std::move(inner).done()); }
  [[nodiscard]] std::string done() && {
    out_ += '}';
    return std::move(out_);
  }

 private:
  ObjectText& raw(std::string_view name, std::string_view value) {
    key(name);
    out_ += value;
    return *this;
  }
  void key(std::string_view name) {
    out_ += out_.size() > 1 ? ",\"" : "\"";
    out_ += name;
    out_ += "\":";
  }
  std::string out_ = "{";
};

std::string answer_text(const service::QuotaAsk& ask, const service::QuotaAnswer& answer) {
  ObjectText resets;
  for (std::size_t p = 0; p < kPeriods.size(); ++p) resets.number(kPeriodNames[p], millis(answer.resets_at[p]));
  std::optional<std::int64_t> start;
  if (answer.estimated_start) start = millis_up(*answer.estimated_start);
  std::optional<std::int64_t> run_ttl;
  if (!answer.run.empty()) run_ttl = millis(answer.run_ttl);
  ObjectText text;
  text.boolean("allowed", answer.allowed)
      .text("reason", answer.reason)
      .text("user", ask.user)
      .text("type", ask.type)
      .text("counted_as", answer.counted_as)
      .text("plan", answer.plan)
      .amount("remaining_today", answer.remaining[0])
      .amount("remaining_week", answer.remaining[1])
      .amount("remaining_month", answer.remaining[2])
      .object("resets_at", std::move(resets))
      .number_of("throttle_factor", answer.throttle_factor)
      .text("warning", answer.warning)
      .number_or_null("estimated_start_ms", start)
      .number("retry_after_ms", millis_up(answer.retry_after))
      .number("delay_ms", millis_up(answer.delay))
      .number("waited_ms", millis(answer.waited))
      .text_or_null("run", answer.run)
      .number_or_null("run_ttl_ms", run_ttl)
      .text_or_null("policy_id", answer.policy_id)
      .text_or_null("lease", answer.lease);
  if (!answer.error.empty()) text.text("error", answer.error);
  if (answer.monitored) {
    text.boolean("would_refuse", !answer.would_reason.empty()).text_or_null("would_reason", answer.would_reason);
  }
  return std::move(text).done();
}

void fail(Handoff& handoff, const Error& error, std::string_view not_found) {
  switch (error.code) {
    case ErrorCode::kNotFound: return handoff.fail(404, not_found, error.message);
    case ErrorCode::kIo: return handoff.fail(503, "ledger_unavailable", error.message);
    default: return handoff.fail(400, "invalid_request", error.message);
  }
}

void tell_user(Handoff& handoff, service::Quotas& quotas, const service::Service& service, const std::string& user,
               const std::string& plan) {
  const Result<service::Quotas::Status> status = quotas.status(user, plan);
  if (!status) return fail(handoff, status.error(), "unknown_user");
  const std::optional<quota::UserRule> rule = quotas.book().rule(user);
  const engine::Engine::Load load = service.engine->load_state();
  Json json{{"user", user},
            {"plan", status->plan},
            {"timezone", status->timezone},
            {"mode", to_string(status->mode)},
            {"rule", rule ? Json::parse(to_json(*rule)) : Json()},
            {"throttle_factor", number_json(quotas.factor())},
            {"system_load", load.load ? number_json(*load.load) : Json()},
            {"warning", status->warning}};
  for (std::size_t p = 0; p < kPeriods.size(); ++p) {
    Json period = Json::object();
    for (const service::Quotas::Use& use : status->types) {
      period[use.type] = {{"limit", amount_json(use.limits[p])},
                          {"used", use.used[p]},
                          {"remaining", amount_json(use.remaining(p))},
                          {"resets_at", millis(use.resets_at[p])}};
    }
    json[std::string(kPeriodNames[p])] = std::move(period);
  }
  handoff.send(json);
}

// What of it is not known.
std::string_view not_found_code(service::Quotas& quotas, std::string_view user) {
  const bool unknown = quotas.options().book.refuse_unknown_users && !quotas.book().has_rule(user);
  return unknown ? "unknown_user" : "unknown_type";
}

std::string lower_hex(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), lower);
  return text;
}
bool is_sha256(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

service::Quotas* quotas_of(const Call& call) {
  service::Quotas* quotas = call.service().quotas;
  if (quotas == nullptr) call.fail(404, "not_found", "this server keeps no quotas");
  return quotas;
}

bool speaks_for_user(const Call& call, std::string& user) {
  const service::Caller& caller = call.caller;
  if (caller.role == state::Role::kAdmin || caller.role == state::Role::kViewer) return true;
  const bool by_agent = caller.user.empty() && caller.role == state::Role::kAgent;
  const std::string& own = by_agent ? caller.agent : caller.user;
  if (user.empty()) user = own;
  if (user.empty()) {
    call.fail(403, "forbidden", "a user must be named, since the token binds none; reading of all takes role viewer");
    return false;
  }
  if (!own.empty() && user != own) {
    call.fail(403, by_agent ? "wrong_agent" : "wrong_subject",
              fmt::format("{} speaks for user \"{}\" only, got \"{}\"", caller.who, own, base::shortened(user, 100)));
    return false;
  }
  // A token that is bound to an agent speaks for the user of that name, so such names are taken as well.
  const service::Subjects& subjects = call.service().access->subjects();
  std::optional<service::Refusal> refusal = subjects.may_name(caller, state::Bound::kUser, user);
  if (!refusal && own.empty()) refusal = subjects.may_name(caller, state::Bound::kAgent, user);
  if (!refusal) return true;
  call.fail(refusal->status, "wrong_subject", refusal->message);
  return false;
}

namespace {

// False: it is too long, and 413 is answered.
bool body_fits(const Call& call) {
  const std::size_t size = call.request.body.size();
  if (size > kMostBody) {
    call.fail(413, "payload_too_large", fmt::format("the body must be at most {} bytes, got {}", kMostBody, size));
  }
  return size <= kMostBody;
}

// What the records of a caller that may name any user are counted by; empty: it speaks for one user, or is an admin.
std::string recorder_of(const service::Caller& caller) {
  const bool bound = !caller.user.empty() || (caller.role == state::Role::kAgent && !caller.agent.empty());
  if (bound || caller.role == state::Role::kAdmin) return {};
  return caller.token != 0 ? fmt::format("token {:x}", caller.token) : caller.who;
}

}  // namespace

void post_quota_check(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !body_fits(call)) return;
  const auto body =
      body_of(call, std::array<std::string_view, 11>{"user", "type", "session", "plan", "size", "estimated_cpu",
                                                     "estimated_mem", "max_wait_ms", "priority", "peek", "run"});
  if (!body) return;
  service::QuotaAsk ask;
  Fields fields(call, *body);
  double cpu = -1;
  double memory = -1;
  std::int64_t max_wait = 0;
  std::int64_t priority = 0;
  fields.text("user", ask.user);
  fields.text("type", ask.type);
  fields.text("session", ask.session);
  fields.text("plan", ask.plan);
  fields.number("size", ask.size, 0, 1e12);
  fields.number("estimated_cpu", cpu, 0, 1e6);
  fields.number("estimated_mem", memory, 0, 1e9);
  fields.whole("max_wait_ms", max_wait, {0, kLongestWaitMs});
  fields.whole("priority", priority, {-1000, 1000});
  fields.boolean("peek", ask.peek);
  fields.text("run", ask.run, kMostRunBytes);
  if (!fields.good() || !speaks_for_user(call, ask.user)) return;
  fields.need("user", ask.user);
  fields.need("type", ask.type);
  if (!fields.good()) return;
  // Whoever could choose its plan would choose the best one.
  if (ask.plan.empty()) ask.plan = call.caller.plan;
  if (!call.caller.plan.empty() && ask.plan != call.caller.plan) {
    return call.fail(403, "wrong_subject",
                     fmt::format("{} speaks for plan \"{}\" only, got \"{}\"", call.caller.who, call.caller.plan,
                                 base::shortened(ask.plan, 100)));
  }
  if (!ask.plan.empty() && call.caller.plan.empty() && call.caller.role == state::Role::kAgent) {
    const Result<quota::Allowance> own = quotas->book().find(ask.user, {}, ask.type);
    if (own && own->plan != ask.plan) {
      return call.fail(
          403, "forbidden",
          fmt::format("plan may be chosen by roles admin and gateway only; leave it out, and it is \"{}\"", own->plan));
    }
  }
  // Nor is it for them to say that they go before everybody else.
  if (priority > 0 && call.caller.role == state::Role::kAgent) {
    return call.fail(403, "forbidden",
                     fmt::format("a priority above 0 may be given by roles admin and gateway only, got {}", priority));
  }
  if (cpu >= 0) ask.cpu = cpu;
  if (memory >= 0) ask.memory = memory;
  ask.max_wait = std::chrono::milliseconds{max_wait};
  ask.priority = static_cast<int>(priority);
  if (call.request.peer != nullptr) ask.ip = call.request.peer->ip;
  ask.recorder = recorder_of(call.caller);
  ask.owner = call.caller.owner;
  auto handoff = std::make_shared<Handoff>(call);
  const std::function<bool()> valid = call.service().access->validity_of(call.caller);
  ask.gone = [handoff, valid] { return handoff->abandoned() || (valid && !valid()); };
  const auto done = [handoff, quotas, named = service::QuotaAsk{.user = ask.user, .type = ask.type}](
                        const Result<service::QuotaAnswer>& answer) {
    if (!answer) return fail(*handoff, answer.error(), not_found_code(*quotas, named.user));
    if (answer->error == service::Quotas::kUnauthorized) return handoff->fail(401, answer->error, answer->reason);
    handoff->answer({.body = answer_text(named, *answer), .headers = quota_headers(*answer)});
  };
  quotas->check(std::move(ask), done);
  handoff->give(call.reply);
}

void post_execution(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !body_fits(call)) return;
  const auto body =
      body_of(call, std::array<std::string_view, 12>{"user_id", "session_id", "command_type", "command_hash",
                                                     "duration_ms", "cpu_usage_percent", "memory_usage_mb", "exit_code",
                                                     "error_message", "executed_at", "run", "plan"});
  if (!body) return;
  quota::Execution execution;
  Fields fields(call, *body);
  service::Quotas::About about;
  std::int64_t exit_code = 0;
  const Nanos wall = call.wall();
  constexpr std::int64_t kDay = std::int64_t{24} * 3'600'000;
  std::int64_t executed_at = millis(wall);
  const std::int64_t oldest = std::max<std::int64_t>(0, executed_at - millis(quotas->options().kept_for));
  fields.text("user_id", execution.user);
  fields.text("session_id", execution.session);
  fields.text("command_type", execution.type);
  fields.text("command_hash", execution.command_hash);
  fields.whole("duration_ms", execution.duration_ms, {0, 3650 * kDay});
  fields.number("cpu_usage_percent", execution.cpu_percent, 0, 1e6);
  fields.number("memory_usage_mb", execution.memory_mb, 0, 1e9);
  fields.whole("exit_code", exit_code, {-2147483648LL, 2147483647LL});
  fields.whole("executed_at", executed_at, {oldest, executed_at + kDay});
  fields.text("run", about.run, kMostRunBytes);
  fields.text("plan", about.plan);
  if (!fields.good()) return;
  // Whatever a program has written may be in it; it is cut, not refused.
  if (const auto error = body->find("error_message"); error != body->end() && !error->is_null()) {
    if (!error->is_string()) return fields.fail("error_message must be text, got " + shown(*error));
    execution.error = base::shortened(error->get<std::string>(), quota::kMaxErrorBytes);
  }
  execution.command_hash = lower_hex(std::move(execution.command_hash));
  if (!execution.command_hash.empty() && !is_sha256(execution.command_hash)) {
    return fields.fail("command_hash must be a SHA-256: 64 hex digits");
  }
  if (!speaks_for_user(call, execution.user)) return;
  fields.need("user_id", execution.user);
  fields.need("command_type", execution.type);
  if (!fields.good()) return;
  execution.exit_code = static_cast<int>(exit_code);
  execution.executed_at = std::chrono::milliseconds{executed_at};
  const std::string user = execution.user;
  service::Quotas::RecordWait record_wait;
  if (!quotas->disk_low()) record_wait = quotas->wait_to_record(user, recorder_of(call.caller));
  if (record_wait.wait > Nanos{0}) {
    if (!about.run.empty()) (void)quotas->end(about.run, user);
    std::string headers;
    append_retry_after(record_wait.wait, headers);
    const bool by_token = record_wait.by_token;
    const service::QuotasOptions::Records most = by_token ? quotas->options().token_records : quotas->options().records;
    return call.fail(429, "too_many_records",
                     fmt::format("of one {} at most {} executions a second and {} a day are recorded "
                                 "(ledger.{}records_per_second, ledger.{}records_per_day)",
                                 by_token ? "token that binds no user" : "user", most.per_second, most.per_day,
                                 by_token ? "token_" : "", by_token ? "token_" : ""),
                     headers);
  }
  if (quotas->disk_low()) {
    if (!about.run.empty()) (void)quotas->end(about.run, user);
    return call.fail(503, "disk_low", "the disk is short of room (ledger.reserve_percent): no execution is recorded");
  }
  auto handoff = std::make_shared<Handoff>(call);
  quotas->record(std::move(execution), about, [handoff, quotas, user](const Result<void>& kept) {
    if (!kept) return fail(*handoff, kept.error(), not_found_code(*quotas, user));
    handoff->send(Json{{"recorded", true}});
  });
  handoff->give(call.reply);
}

void get_quota_user(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr || !is_name(call, "user", call.id) || !speaks_for_user(call, call.id) ||
      !query_fits(call, std::array<std::string_view, 1>{"plan"})) {
    return;
  }
  answer_aside(call,
               [quotas, user = call.id, plan = net::query_value(call.request.query, "plan"),
                &service = call.service()](Handoff& handoff) { tell_user(handoff, *quotas, service, user, plan); });
}

void get_quota_queue(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  std::string own = net::query_value(call.request.query, "user");
  if (!speaks_for_user(call, own)) return;
  const service::Quotas::Line line = quotas->line(kMostShown, own);
  const Nanos now = call.service().clock->now();
  Json waiting = Json::array();
  for (const quota::RunQueue::Waiting& each : line.waiting) {
    waiting.push_back({{"run", service::run_name(each.arrival.id)},
                       {"user", each.arrival.user},
                       {"type", each.arrival.type},
                       {"session", text_or_null(each.arrival.session)},
                       {"priority", each.arrival.priority},
                       {"position", each.position},
                       {"waited_ms", millis(each.waited)},
                       {"estimated_start_ms", each.estimate ? Json(millis_up(*each.estimate)) : Json()}});
  }
  Json running = Json::array();
  for (const quota::RunQueue::Running& each : line.running) {
    if (!own.empty() && each.arrival.user != own) continue;
    running.push_back({{"run", service::run_name(each.arrival.id)},
                       {"user", each.arrival.user},
                       {"type", each.arrival.type},
                       {"session", text_or_null(each.arrival.session)},
                       {"running_ms", millis(now - each.since)}});
  }
  call.send(Json{{"concurrent", quotas->options().queue.concurrent},
                 {"factor", number_json(quotas->factor())},
                 {"running", line.running_count},
                 {"waiting", line.waiting_count},
                 {"line", std::move(waiting)},
                 {"runs", std::move(running)}});
}

void post_renew_run(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  std::string user = net::query_value(call.request.query, "user");
  if (!speaks_for_user(call, user)) return;
  if (!quotas->renew(call.id, user)) {
    return call.fail(404, "not_found", fmt::format("no run \"{}\" is under way", base::shortened(call.id, 100)));
  }
  call.send(Json{{"run", call.id},
                 {"expires_in_ms", millis(quotas->options().queue.ttl)},
                 {"throttle_factor", number_json(quotas->factor())}});
}

void delete_run(Call& call) {
  service::Quotas* quotas = quotas_of(call);
  if (quotas == nullptr) return;
  std::string user = net::query_value(call.request.query, "user");
  if (!speaks_for_user(call, user)) return;
  if (!quotas->end(call.id, user)) {
    return call.fail(404, "not_found", fmt::format("no run \"{}\" waits or runs", base::shortened(call.id, 100)));
  }
  call.send(Json{{"run", call.id}, {"ended", true}});
}

}  // namespace headgate::api

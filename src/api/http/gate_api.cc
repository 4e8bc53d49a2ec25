// GET|POST /v1/gate: for nginx's auth_request and forward-auth proxies, which ask with headers and read the status.
//
// The headers are the proxy's word only where it sets or clears them; otherwise they are its client's. GateTrust says
// which are believed. Every request counts at least one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "api/http/asking.h"
#include "api/http/limit_headers.h"
#include "api/http/routes.h"
#include "base/ascii.h"
#include "base/json_pen.h"
#include "base/text.h"
#include "base/utf8.h"
#include "engine/check_json.h"

namespace headgate::api {
namespace {

constexpr std::string_view kQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded";

bool is_address(std::string_view text) noexcept {
  constexpr std::size_t kLongest = 64;
  return !text.empty() && text.size() <= kLongest && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == '.' || c == ':';
  });
}

// Reads the headers that are believed. Each of them may be given once: of two, one may be the proxy's and one its
// client's, and the proxy may have checked the other.
class Believed {
 public:
  explicit Believed(const net::HttpRequest& request) noexcept : request_(request) {}

  [[nodiscard]] std::string_view read(std::string_view lower_case_name) noexcept {
    if (request_.count(lower_case_name) > 1) repeated_ = lower_case_name;
    return request_.header(lower_case_name);
  }
  // A header that is a list, which proxies may continue in a line of their own: its last line.
  [[nodiscard]] std::string_view last_line(std::string_view lower_case_name) const noexcept {
    std::string_view last;
    for (const net::Header& header : request_.headers) {
      if (base::equals_ignoring_case(header.name, lower_case_name)) last = header.value;
    }
    return last;
  }
  // One that was read and was given more than once; empty: there is none.
  [[nodiscard]] std::string_view repeated() const noexcept { return repeated_; }
  [[nodiscard]] const net::HttpRequest& request() const noexcept { return request_; }

 private:
  const net::HttpRequest& request_;
  std::string_view repeated_;
};

std::string problem_of_repeated(std::string_view lower_case_name, int count) {
  std::string name(lower_case_name);
  bool begins = true;
  for (char& c : name) {
    if (begins && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    begins = c == '-';
  }
  return fmt::format("{} must be given once, came {} times: let the proxy clear what its client sends", name, count);
}

// The address of the proxy's client, as far as it can be believed.
std::string_view client_ip(Believed& headers, const service::Caller& caller, const GateTrust& trust) noexcept {
  const net::HttpRequest& request = headers.request();
  if (request.peer == nullptr) return {};
  const bool proxy = caller.known ? caller.speaks_for_others() : request.peer->loopback;
  if (proxy) {
    if (const std::string_view real = headers.read("x-real-ip"); is_address(real)) return real;
    if (trust.forwarded_for) {
      const std::string_view hops = headers.last_line("x-forwarded-for");
      const std::size_t comma = hops.rfind(',');
      const std::string_view last = base::trimmed(comma == std::string_view::npos ? hops : hops.substr(comma + 1));
      if (is_address(last)) return last;
    }
  }
  return request.peer->ip;
}

// The path of what the proxy was asked for: without host, query and fragment.
std::string_view path_of(std::string_view uri) noexcept {
  if (!uri.empty() && uri.front() != '/') {
    const std::size_t scheme = uri.find("://");
    if (scheme != std::string_view::npos) uri.remove_prefix(scheme + 3);
    const std::size_t slash = uri.find('/');
    uri = slash == std::string_view::npos ? std::string_view("/") : uri.substr(slash);
  }
  return uri.substr(0, uri.find_first_of("?#"));
}

// The path as upstreams read it (RFC 3986, 6.2.2): without dot segments and doubled slashes, and with what need not be
// encoded decoded. Otherwise a limit by path would be passed by spelling the path differently.
void append_normal(std::string_view path, std::string& out) {
  thread_local std::string decoded;
  decoded.clear();
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned value = 0;
    const char* const digits = path.data() + i + 1;
    const bool escape =
        path[i] == '%' && i + 2 < path.size() && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    if (!escape) {
      decoded += path[i];
      continue;
    }
    const char c = static_cast<char>(value);
    const bool plain = base::is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      decoded += c;
    } else {
      decoded += fmt::format("%{:02X}", value);
    }
    i += 2;
  }
  const std::size_t start = out.size();
  bool folder = true;  // the path ends with a slash
  for (std::string_view rest = decoded; !rest.empty();) {
    const std::size_t slash = rest.find('/');
    const std::string_view segment = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    folder = slash != std::string_view::npos || segment == "." || segment == "..";
    if (segment.empty() || segment == ".") continue;
    if (segment == "..") {
      if (out.size() > start) out.resize(out.rfind('/'));
    } else {
      (out += '/') += segment;
    }
  }
  if (folder || out.size() == start) out += '/';
}

// A value that proxies set under one of several names. One that came under two names, and not the same, may be the
// client's: nullopt.
std::optional<std::string_view> agreed(Believed& headers, std::span<const std::string_view> names) {
  std::string_view found;
  for (const std::string_view name : names) {
    const std::string_view value = headers.read(name);
    if (value.empty()) continue;
    if (!found.empty() && found != value) return std::nullopt;
    found = value;
  }
  return found;
}

constexpr std::array<std::string_view, 3> kUris{"x-original-uri", "x-forwarded-uri", "x-original-url"};

bool names_address(const net::HttpRequest& request) noexcept {
  return std::any_of(kUris.begin(), kUris.end(),
                     [&](std::string_view name) { return !request.header(name).empty() || request.count(name) > 1; });
}

// "GET /path", in `out`; what is too long for an operation counts as its beginning. A problem: what is wrong.
std::string_view operation_of(Believed& headers, std::string& out) {
  constexpr std::array<std::string_view, 2> kMethods{"x-original-method", "x-forwarded-method"};
  const std::optional<std::string_view> named = agreed(headers, kUris);
  const std::optional<std::string_view> by = agreed(headers, kMethods);
  if (!named || !by) {
    return "X-Original-URI or -Method and X-Forwarded-Uri or -Method differ: one of them is the client's; let the "
           "proxy "
           "clear those that it does not set";
  }
  const std::string_view uri = *named;
  const std::string_view method = *by;
  if (uri.empty()) {
    return "the operation is needed: give X-Original-URI or X-Forwarded-Uri, or X-Headgate-Operation";
  }
  out.assign(method.empty() ? to_string(headers.request().method) : method);
  out += ' ';
  append_normal(path_of(uri), out);
  if (out.size() > kMaxNameBytes) {
    std::size_t end = kMaxNameBytes;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0U) == 0x80U) --end;
    out.resize(end);
  }
  return {};
}

// "3", or "tokens=1200, requests=1". False: neither.
bool costs_of(std::string_view text, std::array<Cost, kMaxCosts>& costs, std::size_t& count) noexcept {
  count = 0;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view each = base::trimmed(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (count == costs.size()) return false;
    Cost& cost = costs[count++];
    cost.unit = "requests";
    if (const std::size_t equals = each.find('='); equals != std::string_view::npos) {
      cost.unit = base::trimmed(each.substr(0, equals));
      each = base::trimmed(each.substr(equals + 1));
    }
    const char* end = each.data() + each.size();
    const auto read = std::from_chars(each.data(), end, cost.amount);
    if (read.ec != std::errc{} || read.ptr != end || !std::isfinite(cost.amount) || cost.unit.empty()) return false;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (costs[i].unit == cost.unit) return false;
    }
  }
  return true;
}

// Every request is at least one. False: there is no room left to say so.
bool count_request(std::array<Cost, kMaxCosts>& costs, std::size_t& count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    if (costs[i].unit != "requests") continue;
    if (costs[i].amount >= 0) costs[i].amount = std::max(costs[i].amount, 1.0);  // others are refused as they came
    return true;
  }
  if (count == 0) return true;  // one request by itself
  if (count == costs.size()) return false;
  costs[count++] = {"requests", 1};
  return true;
}

std::int64_t retry_after_ms(const engine::CheckDecision& decision) noexcept {
  constexpr std::int64_t kNanosPerMilli = 1'000'000;
  if (decision.retry_after == kNever) return -1;
  return (decision.retry_after.count() + kNanosPerMilli - 1) / kNanosPerMilli;
}

// The fields of a denial besides those that every error has.
std::string denial_members(const engine::CheckDecision& decision, net::ErrorForm form) {
  const policy::Policy* by = decision.denied_by();
  std::string members;
  {
    base::JsonPen pen(members);
    if (form == net::ErrorForm::kProblem) {
      pen.key("violated-policies");
      pen.put('[');
      if (by != nullptr) pen.string(by->id);
      pen.put(']');
    }
    pen.number_field("retry_after_ms", retry_after_ms(decision));
    pen.text_or_null_field("tier", decision.tier);
    pen.text_or_null_field("policy_id", by == nullptr ? std::string_view() : std::string_view(by->id));
  }
  return members;
}

void answer_gate(const engine::CheckDecision& decision, const ReplyContext& asked, Buffers& buffers,
                 net::HttpAnswer& answer) {
  if (decision.why == engine::Why::kInvalid) {
    return answer_error({400, "invalid_check", decision.problem}, asked, buffers, answer);
  }
  append_limit_headers(decision, buffers.headers);
  if (decision.allowed) {
    answer.status = 204;
    answer.content_type = {};
    append_request_id(asked.request_id, buffers.headers);
    answer.headers = buffers.headers;
  } else {
    const std::string reason = decision.reason();
    answer_error({429, "rate_limited", reason, kQuotaExceeded}, asked, buffers, answer,
                 denial_members(decision, asked.form));
  }
}

}  // namespace

void check_gate(Context& context, const net::HttpRequest& request, net::HttpReply& reply) {
  const service::Admission admission = context.service.access->gates(access_request(request));
  if (admission.refusal) return refuse(request, reply, *admission.refusal);
  reply.standing = standing_of(admission.caller);
  const GateTrust& trust = context.options.gate;
  const auto invalid = [&](std::string_view problem) {
    count_error(context.service, observe::Protocol::kGate, request.now);
    send_error(request, reply, {400, "invalid_check", problem});
  };
  Check check;
  Believed headers(request);
  if (trust.agent) check.agent = headers.read("x-headgate-agent");
  if (trust.operation) check.operation = headers.read("x-headgate-operation");
  if (trust.session) check.session = headers.read("x-headgate-session");
  if (trust.user) check.user = headers.read("x-headgate-user");
  if (trust.context) check.context = headers.read("x-headgate-context");
  check.channel = "http";
  check.ip = client_ip(headers, admission.caller, trust);
  thread_local std::string operation;
  // Where the proxy names no address, the operation can only be the caller's own word.
  if (check.operation.empty() && !names_address(request)) check.operation = headers.read("x-headgate-operation");
  std::string_view problem;
  if (check.operation.empty()) {
    problem = operation_of(headers, operation);
    check.operation = operation;
  }
  std::array<Cost, kMaxCosts> costs;
  std::size_t count = 0;
  const std::string_view cost = trust.cost ? headers.read("x-headgate-cost") : std::string_view();
  if (const std::string_view name = headers.repeated(); !name.empty()) {
    return invalid(problem_of_repeated(name, request.count(name)));
  }
  if (!problem.empty()) return invalid(problem);
  if (!costs_of(cost, costs, count) || !count_request(costs, count)) {
    return invalid(
        fmt::format("X-Headgate-Cost must be a number, or up to {} of UNIT=NUMBER with commas between them, "
                    "each unit once and one of them requests, got \"{}\"",
                    kMaxCosts, base::shortened(cost, 60)));
  }
  check.costs = {costs.data(), count};
  if (const auto refusal = context.service.access->believe(admission.caller, std::nullopt, check)) {
    return refuse(request, reply, *refusal);
  }
  const ReplyContext asked{sane_request_id(request), net::error_form_of(request), &admission.caller};
  // A proxy that gives up before the answer comes may let the request through, so that a check waits in line only for
  // as long as the configuration says.
  check.max_wait = context.options.gate_max_wait;
  const auto on_denial = check.max_wait > Nanos{0} ? engine::OnDenial::kQueue : engine::OnDenial::kAnswer;
  const engine::Account account{admission.caller.owner};
  ask_and_answer<answer_gate>(context, observe::Protocol::kGate, {request.now, check, account, on_denial}, reply,
                              asked);
}

void handle_gate(Call& call) { check_gate(call.context, call.request, call.reply); }

}  // namespace headgate::api

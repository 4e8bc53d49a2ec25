// GET|POST /v1/gate: for nginx's auth_request and forward-auth proxies, which ask with headers and read the status.
//
// The headers are the proxy's word: a proxy must set (or clear) every X-Headgate-* header that it passes on. Addresses
// in X-Forwarded-For and X-Real-IP count only if the proxy is on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "api/asking.h"
#include "api/limit_headers.h"
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

// Who came to the proxy, as far as it can be believed.
std::string_view client_ip(const net::HttpRequest& request) noexcept {
  if (request.peer == nullptr) return {};
  if (request.peer->loopback) {
    const std::string_view hops = request.header("x-forwarded-for");
    const std::size_t comma = hops.rfind(',');
    const std::string_view last = base::trimmed(comma == std::string_view::npos ? hops : hops.substr(comma + 1));
    if (is_address(last)) return last;
    if (const std::string_view real = request.header("x-real-ip"); is_address(real)) return real;
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

// "GET /path", in `out`; what is too long for an operation counts as its beginning. False: nobody has said what is to
// be done.
bool operation_of(const net::HttpRequest& request, std::string& out) {
  std::string_view uri = request.header("x-original-uri");
  std::string_view method = request.header("x-original-method");
  if (uri.empty()) uri = request.header("x-forwarded-uri");
  if (uri.empty()) uri = request.header("x-original-url");
  if (method.empty()) method = request.header("x-forwarded-method");
  if (uri.empty()) return false;
  out.assign(method.empty() ? to_string(request.method) : method);
  out += ' ';
  out += path_of(uri);
  if (out.size() > kMaxNameBytes) {
    std::size_t end = kMaxNameBytes;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0U) == 0x80U) --end;
    out.resize(end);
  }
  return true;
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

std::int64_t retry_after_ms(const engine::CheckDecision& decision) noexcept {
  constexpr std::int64_t kNanosPerMilli = 1'000'000;
  if (decision.retry_after == kNever) return -1;
  return (decision.retry_after.count() + kNanosPerMilli - 1) / kNanosPerMilli;
}

void append_text_or_null(std::string_view text, std::string& out) {
  if (text.empty()) {
    out += "null";
  } else {
    engine::append_json_text(text, out);
  }
}

void append_denial(const engine::CheckDecision& decision, std::string& out) {
  const policy::Policy* by = decision.denied_by();
  out += R"("error":"rate_limited","retry_after_ms":)";
  out += std::to_string(retry_after_ms(decision));
  out += ",\"tier\":";
  append_text_or_null(decision.tier, out);
  out += ",\"policy_id\":";
  append_text_or_null(by == nullptr ? std::string_view() : std::string_view(by->id), out);
}

void answer_gate(const engine::CheckDecision& decision, const Asked& asked, Buffers& buffers, net::HttpAnswer& answer) {
  if (decision.why == engine::Why::kInvalid) {
    answer.status = 400;
    engine::append_json(decision, buffers.body);
  } else if (decision.allowed) {
    answer.status = 204;
    answer.content_type = {};
    append_limit_headers(decision, buffers.headers);
  } else {
    answer.status = 429;
    append_limit_headers(decision, buffers.headers);
    if (asked.problem_json) {
      answer.content_type = "application/problem+json";
      buffers.body += "{\"type\":";
      engine::append_json_text(kQuotaExceeded, buffers.body);
      buffers.body += R"(,"title":"Too Many Requests","status":429,"detail":)";
      engine::append_json_text(decision.reason(), buffers.body);
      buffers.body += ",\"violated-policies\":[";
      if (const policy::Policy* by = decision.denied_by()) engine::append_json_text(by->id, buffers.body);
      buffers.body += "],";
      append_denial(decision, buffers.body);
      buffers.body += '}';
    } else {
      buffers.body += '{';
      append_denial(decision, buffers.body);
      buffers.body += ",\"message\":";
      engine::append_json_text(decision.reason(), buffers.body);
      buffers.body += '}';
    }
  }
  append_request_id(asked.request_id, buffers.headers);
  answer.body = buffers.body;
  answer.headers = buffers.headers;
}

}  // namespace

void check_gate(Context& context, const net::HttpRequest& request, net::HttpReply& reply) {
  const Admission admission = context.service.access->asks(request);
  if (admission.refusal) return refuse(request, reply, *admission.refusal);
  Check check;
  check.agent = request.header("x-headgate-agent");
  if (check.agent.empty()) check.agent = admission.caller.agent;
  if (const auto refusal = Access::speaks_for(admission.caller, check.agent)) return refuse(request, reply, *refusal);
  check.operation = request.header("x-headgate-operation");
  check.session = request.header("x-headgate-session");
  check.user = request.header("x-headgate-user");
  check.context = request.header("x-headgate-context");
  check.channel = "http";
  check.ip = client_ip(request);
  thread_local std::string operation;
  if (check.operation.empty()) {
    if (!operation_of(request, operation)) {
      count_error(context.service, observe::Protocol::kGate, request.now);
      return send_error(request, reply, 400, "invalid_check",
                        "the operation is needed: give X-Headgate-Operation, X-Original-URI or X-Forwarded-Uri");
    }
    check.operation = operation;
  }
  std::array<Cost, kMaxCosts> costs;
  std::size_t count = 0;
  const std::string_view cost = request.header("x-headgate-cost");
  if (!costs_of(cost, costs, count)) {
    count_error(context.service, observe::Protocol::kGate, request.now);
    return send_error(request, reply, 400, "invalid_check",
                      fmt::format("X-Headgate-Cost must be a number, or up to {} of UNIT=NUMBER with commas between "
                                  "them, each unit once, got \"{}\"",
                                  kMaxCosts, base::shortened(cost, 60)));
  }
  check.costs = {costs.data(), count};
  const Asked asked{sane_request_id(request), wants_problem_json(request)};
  ask_and_answer<answer_gate>(context, observe::Protocol::kGate, request, reply, check, asked);
}

void handle_gate(Call& call) { check_gate(call.context, call.request, call.reply); }

}  // namespace headgate::api

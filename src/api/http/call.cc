#include "api/http/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "api/http/limit_headers.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "engine/check_json.h"

namespace headgate::api {
namespace {

constexpr std::size_t kShown = 60;

std::string_view media_type(std::string_view content_type) noexcept {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return type;
}

}  // namespace

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool same_text(std::string_view text, std::string_view lower_case) noexcept {
  return text.size() == lower_case.size() &&
         std::equal(text.begin(), text.end(), lower_case.begin(), [](char a, char b) { return lower(a) == b; });
}

// Or what is read as such.
bool is_json_type(std::string_view content_type) noexcept {
  const std::string_view type = media_type(content_type);
  if (same_text(type, "application/json")) return true;
  // What `curl -d` says unless it is told otherwise. A form of another site cannot pass for it: browsers name their
  // origin.
  if (same_text(type, "application/x-www-form-urlencoded")) return true;
  constexpr std::string_view kSuffix = "+json";
  return type.size() > kSuffix.size() && same_text(type.substr(type.size() - kSuffix.size()), kSuffix);
}

bool is_yaml_type(std::string_view content_type) noexcept {
  const std::string_view type = media_type(content_type);
  for (const std::string_view yaml : {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}) {
    if (same_text(type, yaml)) return true;
  }
  return false;
}

std::string_view sane_request_id(const net::HttpRequest& request) noexcept {
  constexpr std::size_t kLongest = 128;
  const std::string_view id = request.header("x-request-id");
  const bool sane = !id.empty() && id.size() <= kLongest && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == ':' || c == '/' || c == '+' || c == '=';
  });
  return sane ? id : std::string_view();
}

bool wants_problem_json(const net::HttpRequest& request) noexcept {
  return request.header("accept").find("application/problem+json") != std::string_view::npos;
}

std::string_view title_of(int status) noexcept {
  switch (status) {
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 421: return "Misdirected Request";
    case 426: return "Upgrade Required";
    case 429: return "Too Many Requests";
    case 503: return "Service Unavailable";
    default: return status < 500 ? "Request Refused" : "Internal Server Error";
  }
}

std::string_view append_failure(const Failure& failure, bool problem_json, std::string& body) {
  if (!problem_json) {
    body += text_of(Json{{"error", failure.code}, {"message", failure.message}});
    return "application/json";
  }
  body += text_of(Json{{"type", "about:blank"},
                       {"title", title_of(failure.status)},
                       {"status", failure.status},
                       {"detail", failure.message},
                       {"error", failure.code}});
  return "application/problem+json";
}

void send_error(const net::HttpRequest& request, net::HttpReply& reply, int status, std::string_view code,
                std::string_view message, std::string_view headers) {
  net::HttpAnswer answer;
  std::string body;
  answer.content_type = append_failure({status, code, message}, wants_problem_json(request), body);
  answer.status = status;
  answer.body = body;
  answer.headers = headers;
  reply.send(answer);
}

void refuse(const net::HttpRequest& request, net::HttpReply& reply, const service::Refusal& refusal,
            std::string_view headers) {
  std::string more(headers);
  if (refusal.status == 401) more += kBearerChallenge;
  if (refusal.retry_after > Nanos{0}) append_retry_after(refusal.retry_after, more);
  send_error(request, reply, refusal.status, refusal.code, refusal.message, more);
}

void Call::send(const net::HttpAnswer& answer) const {
  if (request_id.empty()) return reply.send(answer);
  std::string headers = fmt::format("X-Request-Id: {}\r\n", request_id);
  headers += answer.headers;
  net::HttpAnswer with_id = answer;
  with_id.headers = headers;
  reply.send(with_id);
}

void Call::send(const Json& body, int status, std::string_view headers) const {
  const std::string text = text_of(body);
  net::HttpAnswer answer;
  answer.status = status;
  answer.body = text;
  answer.headers = headers;
  send(answer);
}

void Call::fail(int status, std::string_view code, std::string_view message, std::string_view headers) const {
  std::string more = request_id.empty() ? std::string() : fmt::format("X-Request-Id: {}\r\n", request_id);
  more += headers;
  send_error(request, reply, status, code, message, more);
}

StatusAndCode answer_to(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return error.transient ? StatusAndCode{503, "unavailable"} : StatusAndCode{400, "invalid_request"};
    case ErrorCode::kNotFound: return {404, "not_found"};
    case ErrorCode::kForbidden: return {403, "wrong_agent"};
    case ErrorCode::kCorrupt:
    case ErrorCode::kTimedOut:
    case ErrorCode::kOverloaded:
    case ErrorCode::kIo: break;
  }
  return {503, "storage_failed"};
}

void Call::fail(const Error& error) const {
  const StatusAndCode answer = answer_to(error);
  fail(answer.status, answer.code, error.message);
}

std::optional<Json> body_of(const Call& call, std::span<const std::string_view> fields) {
  Result<Json> body = fields_of(call.request.body, fields);
  if (body) return *std::move(body);
  call.fail(400, "invalid_request", body.error().message);
  return std::nullopt;
}

bool query_fits(const Call& call, std::span<const std::string_view> names) {
  std::string_view query = call.request.query;
  std::string name;
  std::string value;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const bool whole = net::percent_decoded(pair.substr(0, equals), true, name) &&
                       net::percent_decoded(pair.substr(std::min(equals + 1, pair.size())), true, value);
    if (!whole) {
      call.fail(400, "invalid_request",
                fmt::format("the percent-encoding of \"{}\" is broken", base::shortened(pair, kShown)));
      return false;
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    call.fail(400, "invalid_request",
              fmt::format("there is no parameter \"{}\" here{}", base::shortened(name, kShown),
                          base::did_you_mean(name, std::vector<std::string>(names.begin(), names.end()))));
    return false;
  }
  return true;
}

std::optional<std::int64_t> query_number(const Call& call, std::string_view name, std::int64_t otherwise, Range range) {
  bool found = false;
  const std::string text = net::query_value(call.request.query, name, &found);
  if (!found) return otherwise;
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec == std::errc{} && read.ptr == end && number >= range.least && number <= range.most) return number;
  call.fail(400, "invalid_request",
            fmt::format("{} must be a whole number between {} and {}, got \"{}\"", name, range.least, range.most,
                        base::shortened(text, kShown)));
  return std::nullopt;
}

state::AuditEntry entry_of(const Call& call, std::string action, std::string target) {
  state::AuditEntry entry;
  entry.time = call.wall();
  entry.who = call.who();
  entry.action = std::move(action);
  entry.target = std::move(target);
  return entry;
}

bool is_name(const Call& call, std::string_view what, std::string_view text) {
  if (!text.empty() && text.size() <= kMaxNameBytes && base::is_plain_text(text)) return true;
  call.fail(400, "invalid_request",
            fmt::format("{} must be 1 to {} bytes of UTF-8 without control characters", what, kMaxNameBytes));
  return false;
}

}  // namespace headgate::api

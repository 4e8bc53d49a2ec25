#include "api/http/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/suggest.h"
#include "base/utf8.h"

namespace headgate::api {
namespace {

constexpr std::size_t kShown = 60;

}  // namespace

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
  send_error(request, reply, {status, code, message}, more);
}

void Call::fail(const Error& error) const { fail(service::refusal_of(error)); }

void Call::fail(const service::Refusal& refusal) const { fail(refusal.status, refusal.code, refusal.message); }

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

bool is_name(const Call& call, std::string_view what, std::string_view text) {
  if (!text.empty() && text.size() <= kMaxNameBytes && base::is_plain_text(text)) return true;
  call.fail(400, "invalid_request",
            fmt::format("{} must be 1 to {} bytes of UTF-8 without control characters", what, kMaxNameBytes));
  return false;
}

}  // namespace headgate::api

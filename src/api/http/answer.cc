#include "api/http/answer.h"

#include <algorithm>
#include <string>

#include "api/http/limit_headers.h"
#include "base/ascii.h"
#include "base/text.h"

namespace headgate::api {
namespace {

std::string_view media_type(std::string_view content_type) noexcept {
  return base::trimmed(content_type.substr(0, content_type.find(';')));
}

}  // namespace

// Or what is read as such.
bool is_json_type(std::string_view content_type) noexcept {
  const std::string_view type = media_type(content_type);
  if (base::equals_ignoring_case(type, "application/json")) return true;
  // What `curl -d` says unless it is told otherwise. A form of another site cannot pass for it: browsers name their
  // origin.
  if (base::equals_ignoring_case(type, "application/x-www-form-urlencoded")) return true;
  constexpr std::string_view kSuffix = "+json";
  return type.size() > kSuffix.size() && base::equals_ignoring_case(type.substr(type.size() - kSuffix.size()), kSuffix);
}

bool is_yaml_type(std::string_view content_type) noexcept {
  const std::string_view type = media_type(content_type);
  for (const std::string_view yaml : {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}) {
    if (base::equals_ignoring_case(type, yaml)) return true;
  }
  return false;
}

std::string_view sane_request_id(const net::HttpRequest& request) noexcept {
  constexpr std::size_t kLongest = 128;
  const std::string_view id = request.header("x-request-id");
  const bool sane = !id.empty() && id.size() <= kLongest && std::all_of(id.begin(), id.end(), [](char c) {
    return base::is_letter_or_digit(c) || c == '-' || c == '_' || c == '.' || c == ':' || c == '/' || c == '+' ||
           c == '=';
  });
  return sane ? id : std::string_view();
}

void send_error(const net::HttpRequest& request, net::HttpReply& reply, const net::HttpError& error,
                std::string_view headers) {
  net::HttpAnswer answer;
  std::string body;
  answer.content_type = net::append_error(error, net::error_form_of(request), body);
  answer.status = error.status;
  answer.body = body;
  answer.headers = headers;
  reply.send(answer);
}

void refuse(const net::HttpRequest& request, net::HttpReply& reply, const service::Refusal& refusal,
            std::string_view headers) {
  std::string more(headers);
  if (refusal.status == 401) more += kBearerChallenge;
  if (refusal.retry_after > Nanos{0}) append_retry_after(refusal.retry_after, more);
  send_error(request, reply, {refusal.status, refusal.code, refusal.message}, more);
}

}  // namespace headgate::api

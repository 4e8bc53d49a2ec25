// GET /: a small status page, whole in itself, until a dashboard takes its place.
//
// It asks /api/overview every two seconds with the session's cookie. Nothing on it comes from anywhere else, and what
// agents and policies are called is written as text, never as markup.
#include "api/http/page.h"

#include <fmt/format.h>

#include "api/http/call.h"
#include "api/http/routes.h"
#include "base/hash.h"
#include "headgate/version.h"

namespace headgate::api {
namespace {

std::string with(std::string_view page, std::string_view mark, std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at = page.find(mark); at != std::string_view::npos; at = page.find(mark, begin)) {
    out += page.substr(begin, at - begin);
    out += text;
    begin = at + mark.size();
  }
  out += page.substr(begin);
  return out;
}

}  // namespace

void get_page(Call& call) {
  bool found = false;
  const std::string code = net::query_value(call.request.query, "code", &found);
  bool refused = false;
  if (found && call.request.method == net::Method::kGet) {
    if (const std::optional<std::string> cookie = call.service().access->sign_in(code, access_request(call.request))) {
      // Away from the address that has the code in it.
      const std::string headers =
          *cookie + "Location: /\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n";
      net::HttpAnswer answer;
      answer.status = 303;
      answer.content_type = {};
      answer.headers = headers;
      return call.send(answer);
    }
    refused = true;
  }
  const bool signed_in = !call.service().access->manages(access_request(call.request), false).refusal;
  const std::string nonce = fmt::format("{:016x}{:016x}", base::random_seed(), base::random_seed());
  std::string page = with(status_page(), "@NONCE@", nonce);
  page = with(page, "@VERSION@", HEADGATE_VERSION);
  page = with(page, "@STATE@", signed_in ? "in" : refused ? "refused" : "out");
  const std::string headers = fmt::format(
      "Content-Security-Policy: default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
      "X-Content-Type-Options: nosniff\r\n"
      "X-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\n"
      "Cross-Origin-Opener-Policy: same-origin\r\n"
      "Cache-Control: no-store\r\n",
      nonce);
  net::HttpAnswer answer;
  answer.status = refused ? 401 : 200;
  answer.content_type = "text/html; charset=utf-8";
  answer.body = page;
  answer.headers = headers;
  call.send(answer);
}

}  // namespace headgate::api

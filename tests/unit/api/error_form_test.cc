// Every error has one shape, whichever part of the server answers it.
#include <gtest/gtest.h>

#include "net/http_error.h"
#include "support/api_server.h"

namespace headgate {
namespace {

using net::Method;
using test::Answer;
using test::ApiServer;
using test::Json;

struct Case {
  Method method;
  const char* target;
  const char* body;
  bool admin;  // with the admin's token
  int status;
  const char* code;
  ApiServer::Headers headers{};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      // By the table, before a handler.
      {Method::kGet, "/nowhere", "", true, 404, "not_found"},
      {Method::kGet, "/v1/check", "", true, 405, "method_not_allowed"},
      {Method::kGet, "/api/overview", "", false, 401, "unauthorized"},
      {Method::kPut, "/api/admin/load", "load", true, 415, "unsupported_media_type", {{"Content-Type", "text/plain"}}},
      {Method::kDelete, "/v1/leases/a%2", "", true, 400, "invalid_request"},
      // Checks.
      {Method::kPost, "/v1/check", "{}", false, 400, "invalid_check"},
      {Method::kPost, "/v1/check", "[]", false, 400, "invalid_check"},
      {Method::kPost, "/v1/check", "a", false, 415, "unsupported_media_type", {{"Content-Type", "text/plain"}}},
      {Method::kPost, "/v1/check", "{}", false, 403, "bad_origin", {{"Origin", "http://evil.com"}}},
      {Method::kPost, "/v1/check", "{}", false, 401, "unauthorized", {{"Authorization", "Bearer bad"}}},
      {Method::kPost, "/v1/check/batch", "{}", false, 400, "invalid_request"},
      {Method::kGet, "/v1/gate", "", false, 400, "invalid_check"},
      {Method::kGet, "/v1/gate", "", false, 400, "invalid_check", {{"X-Headgate-Operation", "\xff"}}},
      {Method::kGet, "/v1/gate", "", false, 401, "unauthorized", {{"Authorization", "Bearer bad"}}},
      {Method::kPost, "/v1/leases/none/settle", "{}", false, 400, "invalid_request"},
      {Method::kPost, "/v1/leases/none/renew", "", false, 404, "not_found"},
      {Method::kDelete, "/v1/leases/none", "", false, 404, "not_found"},
      {Method::kGet, "/v1/ws", "", false, 404, "not_found"},
      // Managing.
      {Method::kPut, "/api/admin/load", "{}", true, 400, "invalid_request"},
      {Method::kPut, "/api/admin/rate-limits/defaults", "[]", true, 400, "invalid_request"},
      {Method::kDelete, "/api/admin/rate-limits/A", "", true, 404, "not_found"},
      {Method::kGet, "/api/admin/audit?limit=0", "", true, 400, "invalid_request"},
      {Method::kPost, "/api/admin/tokens", R"({"role":"root"})", true, 400, "invalid_request"},
      {Method::kDelete, "/api/admin/tokens/none", "", true, 404, "not_found"},
      {Method::kGet, "/api/agents?eligible=x", "", true, 400, "invalid_request"},
      {Method::kPost, "/api/alerts/99/ack", "", true, 404, "not_found"},
      {Method::kGet, "/api/quotas/queue", "", true, 404, "not_found"},
      // From another thread.
      {Method::kPut, "/api/admin/policies", "policies: 1", true, 400, "invalid_policies"},
      {Method::kGet, "/api/admin/policies/versions/99", "", true, 404, "not_found"},
      {Method::kPost, "/api/admin/policies/rollback", R"({"version":99})", true, 404, "not_found"},
      {Method::kDelete, "/api/admin/policies/none", "", true, 404, "not_found"},
  };
  return kCases;
}

Answer answer_to(ApiServer& server, const Case& each, bool problem) {
  ApiServer::Headers headers = each.headers;
  if (problem) headers.emplace_back("Accept", "text/html, application/problem+json;q=0.9");
  return each.admin ? server.manage(each.method, each.target, each.body, headers)
                    : server.call(each.method, each.target, each.body, headers);
}

TEST(ErrorForm, EveryErrorIsACodeAndAMessage) {
  ApiServer server;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.target);
    const Answer answer = answer_to(server, each, false);
    EXPECT_EQ(answer.status, each.status) << answer.body;
    EXPECT_EQ(answer.content_type, "application/json");
    const Json body = answer.json();
    EXPECT_EQ(body.value("error", ""), each.code) << answer.body;
    EXPECT_NE(body.value("message", ""), "") << answer.body;
    EXPECT_FALSE(body.contains("type")) << answer.body;
  }
}

TEST(ErrorForm, ProblemJsonIsTheSameWhereAcceptNamesIt) {
  ApiServer server;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.target);
    const Answer answer = answer_to(server, each, true);
    EXPECT_EQ(answer.status, each.status) << answer.body;
    EXPECT_EQ(answer.content_type, "application/problem+json");
    const Json body = answer.json();
    EXPECT_EQ(body.value("type", ""), "about:blank") << answer.body;
    EXPECT_NE(body.value("title", ""), "") << answer.body;
    EXPECT_EQ(body.value("status", 0), each.status) << answer.body;
    EXPECT_EQ(body.value("error", ""), each.code) << answer.body;
    EXPECT_NE(body.value("detail", ""), "") << answer.body;
    EXPECT_EQ(body.value("message", ""), body.value("detail", "")) << answer.body;
  }
}

TEST(ErrorForm, MessageThatIsNotUtf8IsRepaired) {
  std::string body;
  net::append_error({400, "bad", "a\xff\"b"}, net::ErrorForm::kPlain, body);
  EXPECT_EQ(body, "{\"error\":\"bad\",\"message\":\"a\xEF\xBF\xBD\\\"b\"}");
}

TEST(ErrorForm, MoreFieldsFollow) {
  std::string body;
  EXPECT_EQ(net::append_error({429, "slow", "wait", "urn:x"}, net::ErrorForm::kProblem, body, ",\"left\":1"),
            "application/problem+json");
  EXPECT_EQ(body, R"({"type":"urn:x","title":"Too Many Requests","status":429,"detail":"wait","error":"slow",)"
                  R"("message":"wait","left":1})");
}

}  // namespace
}  // namespace headgate

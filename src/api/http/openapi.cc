// GET /openapi.json: made of the table of routes, and of the schemas that are written in openapi_schemas.cc.
#include "api/http/openapi.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "api/http/call.h"
#include "api/http/routes.h"
#include "headgate/version.h"

namespace headgate::api {
namespace {

Json reference(std::string_view schema) { return {{"$ref", fmt::format("#/components/schemas/{}", schema)}}; }

Json content(std::string_view type, Json schema) {
  Json json = Json::object();
  json[std::string(type)] = Json{{"schema", std::move(schema)}};
  return json;
}

std::string_view method_name(net::Method method) {
  switch (method) {
    case net::Method::kGet: return "get";
    case net::Method::kPost: return "post";
    case net::Method::kPut: return "put";
    default: return "delete";
  }
}

// "post /v1/leases/{id}/settle" as a name: "post_v1_leases_id_settle".
std::string operation_id(const Route& route) {
  std::string id(method_name(route.method));
  for (const char c : route.path) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (word) {
      id += c;
    } else if (id.back() != '_') {
      id += '_';
    }
  }
  while (id.back() == '_') id.pop_back();
  return id;
}

Json parameter(std::string_view name, std::string_view where, Json schema, std::string_view about) {
  return {{"name", name},
          {"in", where},
          {"required", where == "path"},
          {"description", about},
          {"schema", std::move(schema)}};
}

Json parameters_of(const Route& route) {
  Json list = Json::array();
  const Json text{{"type", "string"}};
  const Json number{{"type", "integer"}};
  if (const std::size_t open = route.path.find('{'); open != std::string_view::npos) {
    const std::string_view name = route.path.substr(open + 1, route.path.find('}') - open - 1);
    list.push_back(parameter(name, "path", text, "percent-encoded"));
  }
  const auto query = [&](std::string_view name, const Json& schema, std::string_view about) {
    list.push_back(parameter(name, "query", schema, about));
  };
  const auto is = [&](net::Method method, std::string_view path) {
    return route.method == method && route.path == path;
  };
  if (is(net::Method::kGet, "/api/quotas/user/{user}")) {
    query("plan", text, "of the user, if no rule says");
  } else if (is(net::Method::kGet, "/api/agents")) {
    query("eligible", Json{{"type", "boolean"}}, "true: leave out those that are rate limited");
    query("limit", number, "1 to 10000, default 1000");
  } else if (is(net::Method::kGet, "/api/history")) {
    query("since", number, "epoch milliseconds, default an hour ago, at most a day back");
    query("step", number, "milliseconds, default 10000, at least 1000");
  } else if (is(net::Method::kGet, "/api/admin/audit")) {
    query("limit", number, "1 to 1000, default 100");
    query("before", number, "only entries with a smaller id");
    query("action", text, "only these: override.set, or all that begin so: override.");
  } else if (is(net::Method::kGet, "/api/admin/policies/versions")) {
    query("limit", number, "1 to 200, default 200");
  } else if (is(net::Method::kDelete, "/api/admin/tokens")) {
    query("id", text, "the token's");
  } else if (is(net::Method::kGet, "/")) {
    query("code", text, "of the sign-in link");
  } else if (route.path == "/v1/gate") {
    for (const char* name : {"X-Headgate-Agent", "X-Headgate-Operation", "X-Headgate-Session", "X-Headgate-User",
                             "X-Headgate-Cost", "X-Headgate-Context", "X-Original-URI", "X-Original-Method",
                             "X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-For", "X-Real-IP"}) {
      list.push_back(parameter(name, "header", text, "set by the proxy"));
    }
  } else if (is(net::Method::kGet, "/api/events")) {
    list.push_back(parameter("Last-Event-ID", "header", number, "go on after this one"));
  }
  return list;
}

struct Success {
  std::string_view status;
  std::string_view type;  // empty: no body
  std::string_view about;
};

Success success_of(const Route& route) {
  if (route.gives == "Nothing") return {"204", "", "allowed"};
  if (route.gives == "Upgrade") return {"101", "", "it is a WebSocket now"};
  if (route.gives == "Text") return {"200", "text/plain", "Prometheus text"};
  if (route.gives == "Page") return {"200", "text/html", "the page"};
  if (route.gives == "Events") return {"200", "text/event-stream", "events, for as long as you listen"};
  if (route.gives == "NewToken") return {"201", "application/json", "made"};
  return {"200", "application/json", "done"};
}

Json answers_of(const Route& route) {
  Json answers = Json::object();
  const Success success = success_of(route);
  Json& good = answers[std::string(success.status)] = Json{{"description", success.about}};
  const bool is_text =
      success.type == "text/plain" || success.type == "text/html" || success.type == "text/event-stream";
  if (is_text) {
    good["content"] = content(success.type, Json{{"type", "string"}});
  } else if (!success.type.empty()) {
    good["content"] = content(success.type, reference(route.gives));
  }
  const auto add = [&](const char* status, const char* about, std::string_view schema) {
    answers[status] = Json{{"description", about}, {"content", content("application/json", reference(schema))}};
  };
  if (route.path == "/v1/gate") add("429", "denied", "GateDenial");
  if (route.path == "/readyz") add("503", "not ready", "Readiness");
  add("default", "what went wrong; as application/problem+json if asked for", "Error");
  return answers;
}

Json security_of(const Route& route) {
  switch (route.need) {
    case Need::kOpen: return Json::array();
    case Need::kAsk:
    case Need::kMetrics: return Json::array({Json::object(), Json{{"token", Json::array()}}});
    case Need::kView:
    case Need::kQuotas:
    case Need::kChange: break;
  }
  return Json::array({Json{{"token", Json::array()}}, Json{{"session", Json::array()}}});
}

Json build() {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    Json operation{{"operationId", operation_id(route)}, {"summary", route.summary}};
    if (Json parameters = parameters_of(route); !parameters.empty()) operation["parameters"] = std::move(parameters);
    if (!route.takes.empty()) {
      Json bodies = content("application/json", reference(route.takes));
      if (route.yaml) bodies["application/yaml"] = Json{{"schema", Json{{"type", "string"}}}};
      operation["requestBody"] = Json{{"required", true}, {"content", std::move(bodies)}};
    }
    operation["responses"] = answers_of(route);
    operation["security"] = security_of(route);
    paths[std::string(route.path)][std::string(method_name(route.method))] = std::move(operation);
  }
  Json json{{"openapi", "3.1.0"},
            {"info",
             {{"title", "Headgate"},
              {"version", HEADGATE_VERSION},
              {"description", "Rate limits, velocity control, quotas and an emergency brake for AI agents."}}},
            {"paths", std::move(paths)}};
  json["components"]["schemas"] = Json::parse(openapi_schemas());
  json["components"]["securitySchemes"] = {
      {"token", {{"type", "http"}, {"scheme", "bearer"}}},
      {"session", {{"type", "apiKey"}, {"in", "cookie"}, {"name", "headgate_session"}}}};
  return json;
}

}  // namespace

void get_openapi(Call& call) {
  static const std::string kText = build().dump(1);
  net::HttpAnswer answer;
  answer.body = kText;
  call.send(answer);
}

}  // namespace headgate::api

// /api/admin: the emergency throttle, load from outside, the audit log, tokens.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/http/keeping.h"
#include "api/http/routes.h"
#include "base/utf8.h"
#include "service/tier_json.h"

namespace headgate::api {
namespace {

constexpr std::int64_t kMostEntries = 1'000;
constexpr std::int64_t kLongestTtlMs = std::int64_t{3650} * 24 * 3600 * 1000;

Json emergency_json(const control::Emergency& state) {
  const bool on = state.active;
  return {{"active", on},
          {"reason", on ? Json(state.reason) : Json()},
          {"enabled_at", on ? Json(millis(state.since)) : Json()},
          {"enabled_by", on ? Json(state.by) : Json()},
          {"automatic", on && state.automatic}};
}

// What was kept as JSON, as JSON.
Json kept_json(const std::string& text) {
  if (text.empty()) return nullptr;
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json(text) : json;
}

Json token_json(const state::Token& token) {
  return {{"id", token.id},
          {"role", to_string(token.role)},
          {"agent", text_or_null(token.agent)},
          {"user", text_or_null(token.user)},
          {"tenant", text_or_null(token.tenant)},
          {"plan", text_or_null(token.plan)},
          {"name", token.name},
          {"created_at", millis(token.created)},
          {"expires_at", token.expires == Nanos{0} ? Json() : Json(millis(token.expires))}};
}

// Optional text of a body. False: it was answered with 400.
bool take_text(const Call& call, const Json& body, std::string_view field, std::string& out) {
  const auto found = body.find(field);
  if (found == body.end() || found->is_null()) return true;
  if (!found->is_string()) {
    call.fail(400, "invalid_request", fmt::format("{} must be text", field));
    return false;
  }
  out = found->get<std::string>();
  return true;
}

}  // namespace

void get_emergency(Call& call) { call.send(emergency_json(call.service().engine->controls().emergency())); }

void put_emergency(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"reason"});
  if (!body) return;
  control::EmergencyOrder order;
  if (!take_text(call, *body, "reason", order.reason)) return;
  order.by = call.who().empty() ? "admin" : call.who();
  const Keeping keeping(call);
  if (const auto refused = call.context.settings.turn_emergency_on(order, keeping.change())) return call.fail(*refused);
  keeping.answer(with_spread(call, emergency_json(call.service().engine->controls().emergency())));
}

void delete_emergency(Call& call) {
  const Keeping keeping(call);
  const bool changed = call.context.settings.turn_emergency_off(keeping.change());
  Json state = with_spread(call, emergency_json(call.service().engine->controls().emergency()));
  if (!changed) return call.send(state);
  keeping.answer(std::move(state));
}

void get_load(Call& call) { call.send(service::load_json(call.service().engine->controls().load_state())); }

void put_load(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"load"});
  if (!body) return;
  const auto load = body->find("load");
  if (load == body->end() || !load->is_number() || !(*load >= 0 && *load <= 1)) {
    return call.fail(400, "invalid_request",
                     fmt::format("load must be a number between 0 and 1, got {}",
                                 load == body->end() ? "none" : base::shortened(text_of(*load), 60)));
  }
  call.send(service::load_json(call.context.settings.report_load(load->get<double>(), call.who())));
}

void delete_load(Call& call) {
  call.send(service::load_json(call.context.settings.report_load(std::nullopt, call.who())));
}

void delete_cells(Call& call) {
  if (!query_fits(call, std::array<std::string_view, 1>{"space"})) return;
  const std::string space = net::query_value(call.request.query, "space");
  if (space != "throttle") {
    return call.fail(400, "invalid_request",
                     "which cells? ?space=throttle: those of limits that callers name; no others can be cleared");
  }
  const Result<std::size_t> cells = call.context.settings.clear_caller_cells(call.who());
  if (!cells) return call.fail(cells.error());
  call.send(Json{{"space", space}, {"cells", *cells}});
}

void get_audit(Call& call) {
  constexpr std::int64_t kAnyId = std::numeric_limits<std::int64_t>::max();
  const auto limit = query_number(call, "limit", 100, {1, kMostEntries});
  if (!limit) return;
  const auto before = query_number(call, "before", 0, {0, kAnyId});
  if (!before) return;
  state::AuditQuery query;
  query.limit = static_cast<std::size_t>(*limit);
  query.before = *before;
  query.action = net::query_value(call.request.query, "action");
  const state::Database& database = *call.service().database;
  read_in_background(call, [&database, query](Handoff& handoff) {
    const Result<std::vector<state::AuditEntry>> found = database.audit(query);
    if (!found) return handoff.fail(found.error());
    Json entries = Json::array();
    for (const state::AuditEntry& entry : *found) {
      entries.push_back({{"id", entry.id},
                         {"time", millis(entry.time)},
                         {"who", entry.who},
                         {"action", entry.action},
                         {"target", text_or_null(entry.target)},
                         {"before", kept_json(entry.before)},
                         {"after", kept_json(entry.after)}});
    }
    const bool more = found->size() == query.limit;
    handoff.send(Json{{"entries", std::move(entries)}, {"next", more ? Json(found->back().id) : Json()}});
  });
}

void get_tokens(Call& call) {
  Json tokens = Json::array();
  for (const state::Token& token : call.service().database->tokens()) tokens.push_back(token_json(token));
  call.send(Json{{"tokens", std::move(tokens)}});
}

void post_token(Call& call) {
  const auto body =
      body_of(call, std::array<std::string_view, 7>{"role", "agent", "user", "tenant", "plan", "name", "ttl_ms"});
  if (!body) return;
  state::Database::TokenRequest request;
  std::string role;
  if (!take_text(call, *body, "role", role) || !take_text(call, *body, "agent", request.agent) ||
      !take_text(call, *body, "user", request.user) || !take_text(call, *body, "tenant", request.tenant) ||
      !take_text(call, *body, "plan", request.plan) || !take_text(call, *body, "name", request.name)) {
    return;
  }
  const std::optional<state::Role> known = state::role_of(role);
  if (!known) {
    return call.fail(
        400, "invalid_request",
        fmt::format("role must be admin, viewer, gateway or agent, got \"{}\"", base::shortened(role, 60)));
  }
  request.role = *known;
  if (const auto ttl = body->find("ttl_ms"); ttl != body->end() && !ttl->is_null()) {
    if (!ttl->is_number_integer() || *ttl < 1 || *ttl > kLongestTtlMs) {
      return call.fail(400, "invalid_request",
                       fmt::format("ttl_ms must be a whole number between 1 and {}, or left out", kLongestTtlMs));
    }
    request.ttl = std::chrono::milliseconds{ttl->get<std::int64_t>()};
  }
  const auto handoff = std::make_shared<Handoff>(call);
  call.service().database->create_token(request, call.who(), call.wall(), [handoff](const auto& made) {
    if (!made) return handoff->fail(made.error());
    Json json{{"id", made->token.id}, {"secret", made->secret}};
    json.update(token_json(made->token));
    handoff->answer({.status = 201, .body = text_of(json), .headers = "Cache-Control: no-store\r\n"});
  });
  handoff->give(call.reply);
}

void delete_token(Call& call) {
  const std::string id = call.id.empty() ? net::query_value(call.request.query, "id") : call.id;
  if (id.empty()) return call.fail(400, "invalid_request", "which token? Give its id in the path, or as ?id=");
  const Keeping keeping(call);
  if (!call.service().database->revoke_token(id, call.who(), call.wall(), keeping.kept())) {
    return call.fail(404, "not_found", fmt::format("there is no token \"{}\"", id));
  }
  keeping.answer(Json{{"id", id}, {"revoked", true}});
}

}  // namespace headgate::api

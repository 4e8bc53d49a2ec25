// /api/admin/policies: what is in force, changing it, trying it out, and going back.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "api/http/handoff.h"
#include "api/http/keeping.h"
#include "api/http/routes.h"
#include "api/http/simulation_runner.h"
#include "engine/check_json.h"

namespace headgate::api {
namespace {

constexpr std::int64_t kMostVersions = 200;

Json problems_json(const std::vector<policy::Problem>& problems) {
  Json list = Json::array();
  for (const policy::Problem& problem : problems) {
    list.push_back({{"file", problem.place.file},
                    {"line", problem.place.line},
                    {"column", problem.place.column},
                    {"message", problem.message}});
  }
  return list;
}

Handoff::Answer refusal_of(const std::vector<policy::Problem>& problems, net::ErrorForm form) {
  std::string message = problems.front().text();
  if (problems.size() > 1) message += fmt::format(" (and {} more)", problems.size() - 1);
  Handoff::Answer answer{.status = 400, .body = {}, .headers = {}};
  answer.content_type = net::append_error({400, "invalid_policies", message}, form, answer.body,
                                          ",\"problems\":" + text_of(problems_json(problems)));
  return answer;
}

// True: it is in force. Otherwise it has been answered.
bool in_force(Handoff& handoff, const service::Policies::Changed& changed) {
  if (changed.ok()) return true;
  if (changed.error) {
    handoff.fail(*changed.error);
  } else {
    handoff.answer(refusal_of(changed.problems, handoff.error_form()));
  }
  return false;
}

// The document that the body is, or has as its text.
std::string document_of(const std::string& body) {
  const Result<Json> json = json_of(body);
  if (json && json->is_object() && json->size() == 1 && json->contains("text") && json->at("text").is_string()) {
    return json->at("text").get<std::string>();
  }
  return body;
}

// Reading a document takes time that grows with its size, so that it is not done on the io thread.
template <class Work>
void change_policies(Call& call, Work work) {
  answer_in(*call.context.changes, call, "too many changes of policies wait already; try again in a moment",
            std::move(work));
}
// Apart from changes, so that viewers cannot hold up those.
template <class Work>
void try_policies(Call& call, Work work) {
  answer_in(*call.context.trials, call, "too many validations and explanations wait already; try again in a moment",
            std::move(work));
}

Json key_json(const policy::Policy& policy) {
  Json key = Json::array();
  for (const policy::KeyPart& part : policy.key) {
    std::string name = to_string(part.dimension);
    if (part.dimension == policy::Dimension::kAttribute) name += ":" + part.attribute;
    key.push_back(std::move(name));
  }
  return key;
}

Json limits_json(const policy::Policy& policy) {
  Json limits = Json::array();
  for (const Limit& limit : policy.limits) limits.push_back(describe(policy, limit));
  for (const policy::Variant& variant : policy.variants) {
    for (const Limit& limit : variant.limits) limits.push_back(variant.name + ": " + describe(policy, limit));
  }
  return limits;
}

const char* source_of(const policy::Policy& policy, const service::Policies::Layers& layers) {
  if (layers.policies.contains(policy.id)) return "api";
  if (policy.place.line == 0) return "built_in";
  return layers.from_files ? "files" : "api";
}

Json least_cost_json(const policy::Policy& policy) {
  return policy.least_cost == 0 ? Json() : number_json(least_cost(policy));
}

Json policy_json(const policy::Policy& policy, const service::Policies::Layers& layers) {
  return {{"id", policy.id},
          {"name", policy.name},
          {"mode", to_string(policy.mode)},
          {"priority", policy.priority},
          {"limits", limits_json(policy)},
          {"action", to_string(policy.action)},
          {"behavior", to_string(policy.behavior)},
          {"key", key_json(policy)},
          {"unit", policy.unit},
          {"least_cost", least_cost_json(policy)},
          {"holds", policy.holds},
          {"source", source_of(policy, layers)}};
}

Json version_json(const state::PolicyVersion& version) {
  return {{"id", version.id},
          {"time", millis(version.time)},
          {"who", version.who},
          {"source", version.source},
          {"note", version.note}};
}

Json explained_json(const engine::Explained& about, const Check& check) {
  const std::string reason = why_not(about, check);
  Json cells = Json::array();
  for (const engine::Explained::Cell& cell : about.cells) {
    cells.push_back({{"limit", cell.limit},
                     {"capacity", number_json(cell.capacity)},
                     {"remaining", number_json(cell.remaining)},
                     {"reset_after_ms", millis(cell.reset_after)},
                     {"fits", cell.fits}});
  }
  return {{"id", about.policy->id},
          {"matches", reason.empty()},
          {"why_not", reason.empty() ? Json() : Json(reason)},
          {"key", about.key},
          {"enforced", about.enforced},
          {"variant", about.variant.empty() ? Json() : Json(about.variant)},
          {"least_cost", least_cost_json(*about.policy)},
          {"holds", about.policy->holds},
          {"cells", std::move(cells)}};
}

}  // namespace

void get_policies(Call& call) {
  const service::Policies::View view = call.context.policies.view();
  Json policies = Json::array();
  const auto rules = call.service().engine->rules();
  for (const policy::Policy& each : rules->rules.policies()) policies.push_back(policy_json(each, view.layers));
  Json put = Json::object();
  for (const auto& [id, text] : view.layers.policies) put[id] = text;
  call.send(Json{{"version", view.version},
                 {"source", view.layers.from_files ? "files" : "api"},
                 {"enforcement", to_string(view.document.enforcement)},
                 {"mode", to_string(view.document.mode)},
                 {"text", service::Policies::stream(view.layers)},
                 {"changes", {{"put", std::move(put)}, {"deleted", view.layers.deleted}}},
                 {"policies", std::move(policies)}});
}

void put_policies(Call& call) {
  change_policies(call, [&context = call.context, body = std::string(call.request.body),
                         who = call.who()](Handoff& handoff) {
    const Keeping keeping(handoff);
    const service::Policies::Changed changed = context.policies.replace(document_of(body), who, keeping.kept());
    if (!in_force(handoff, changed)) return;
    keeping.answer(Json{{"version", changed.version}, {"policies", context.service.engine->rules()->policies.size()}});
  });
}

void delete_policies(Call& call) {
  change_policies(call, [&context = call.context, who = call.who()](Handoff& handoff) {
    const Keeping keeping(handoff);
    const service::Policies::Changed changed = context.policies.revert(who, keeping.kept());
    if (!in_force(handoff, changed)) return;
    keeping.answer(Json{{"version", changed.version}, {"policies", context.service.engine->rules()->policies.size()}});
  });
}

void put_policy(Call& call) {
  if (!is_name(call, "id", call.id)) return;
  change_policies(call, [&policies = call.context.policies, id = call.id, body = std::string(call.request.body),
                         who = call.who()](Handoff& handoff) {
    const Keeping keeping(handoff);
    const service::Policies::Changed changed = policies.put(id, document_of(body), who, keeping.kept());
    if (in_force(handoff, changed)) keeping.answer(Json{{"version", changed.version}, {"id", id}});
  });
}

void delete_policy(Call& call) {
  if (!is_name(call, "id", call.id)) return;
  change_policies(call, [&policies = call.context.policies, id = call.id, who = call.who()](Handoff& handoff) {
    const Keeping keeping(handoff);
    const service::Policies::Changed changed = policies.remove(id, who, keeping.kept());
    if (in_force(handoff, changed)) keeping.answer(Json{{"version", changed.version}, {"id", id}});
  });
}

void post_validate(Call& call) {
  try_policies(call, [body = std::string(call.request.body)](Handoff& handoff) {
    if (handoff.abandoned()) return;
    const policy::ReadResult result = service::Policies::validate(document_of(body));
    handoff.send(Json{
        {"ok", result.ok()}, {"problems", problems_json(result.problems)}, {"notes", problems_json(result.notes)}});
  });
}

void post_simulate(Call& call) {
  try_policies(call, [&context = call.context, body = std::string(call.request.body)](Handoff& handoff) {
    if (handoff.abandoned()) return;
    const Result<Json> fields = fields_of(body, std::array<std::string_view, 2>{"text", "trace"});
    if (!fields) return handoff.fail(400, "invalid_request", fields.error().message);
    const auto trace = fields->find("trace");
    if (trace == fields->end() || !trace->is_string()) {
      return handoff.fail(400, "invalid_request", "trace must be text: JSON lines, or CSV with a header");
    }
    Simulated simulated;
    simulated.trace = trace->get<std::string>();
    if (const auto text = fields->find("text"); text == fields->end()) {
      simulated.document = context.policies.view().document;
    } else if (!text->is_string()) {
      return handoff.fail(400, "invalid_request", "text must be the text of a document");
    } else {
      policy::ReadResult result = service::Policies::validate(text->get<std::string>());
      if (!result.ok()) return handoff.answer(refusal_of(result.problems, handoff.error_form()));
      simulated.document = std::move(result.document);
    }
    if (simulated.trace.size() > SimulationRunner::kMostBytes) {
      return handoff.fail(400, "invalid_request",
                          fmt::format("trace must be at most {} bytes long, got {}", SimulationRunner::kMostBytes,
                                      simulated.trace.size()));
    }
    if (!context.simulations->idle()) {
      return handoff.fail(503, "busy", "another simulation is running; try again when it is done",
                          "Retry-After: 1\r\n");
    }
    simulated.handoff = handoff.shared_from_this();
    context.simulations->start(std::move(simulated));
  });
}

void post_explain(Call& call) {
  try_policies(call, [&service = call.service(), body = std::string(call.request.body)](Handoff& handoff) {
    if (handoff.abandoned()) return;
    engine::CheckReader reader;
    if (const Result<void> read = reader.read(body); !read) {
      return handoff.fail(400, "invalid_check", read.error().message);
    }
    Check check = reader.check();
    if (check.channel.empty()) check.channel = "http";
    const engine::Explanation explanation = service.engine->explain(check);
    if (explanation.decision.why == engine::Why::kInvalid) {
      return handoff.fail(400, "invalid_check", explanation.decision.problem);
    }
    std::string decision;
    engine::append_json(explanation.decision, decision);
    Json policies = Json::array();
    for (const engine::Explained& about : explanation.policies) policies.push_back(explained_json(about, check));
    handoff.send(Json{{"decision", Json::parse(decision, nullptr, false)}, {"policies", std::move(policies)}});
  });
}

void get_versions(Call& call) {
  const auto limit = query_number(call, "limit", kMostVersions, {1, kMostVersions});
  if (!limit) return;
  const state::Database& database = *call.service().database;
  read_in_background(call, [&database, limit = static_cast<std::size_t>(*limit)](Handoff& handoff) {
    const Result<std::vector<state::PolicyVersion>> found = database.versions(limit);
    if (!found) return handoff.fail(found.error());
    Json versions = Json::array();
    for (const state::PolicyVersion& version : *found) versions.push_back(version_json(version));
    handoff.send(Json{{"versions", std::move(versions)}});
  });
}

void get_version(Call& call) {
  std::int64_t id = 0;
  const char* end = call.id.data() + call.id.size();
  const auto read = std::from_chars(call.id.data(), end, id);
  const std::string missing = fmt::format("there is no version \"{}\"", call.id);
  if (read.ec != std::errc{} || read.ptr != end) return call.fail(404, "not_found", missing);
  const state::Database& database = *call.service().database;
  read_in_background(call, [&database, id, missing](Handoff& handoff) {
    const Result<std::optional<state::PolicyVersion>> version = database.version(id);
    if (!version) return handoff.fail(version.error());
    if (!*version) return handoff.fail(404, "not_found", missing);
    Json json = version_json(**version);
    json["text"] = (*version)->text;
    handoff.send(json);
  });
}

void post_rollback(Call& call) {
  const auto body = body_of(call, std::array<std::string_view, 1>{"version"});
  if (!body) return;
  const auto version = body->find("version");
  if (version == body->end() || !version->is_number_integer()) {
    return call.fail(400, "invalid_request", "version must be the whole number of an earlier version");
  }
  // The version is read from disk.
  service::Policies& policies = call.context.policies;
  read_in_background(call, [&policies, id = version->get<std::int64_t>(), who = call.who()](Handoff& handoff) {
    const Keeping keeping(handoff);
    const service::Policies::Changed changed = policies.rollback(id, who, keeping.kept());
    if (in_force(handoff, changed)) keeping.answer(Json{{"version", changed.version}, {"restored", id}});
  });
}

}  // namespace headgate::api

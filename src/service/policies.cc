#include "service/policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/ruleset.h"
#include "policy/node.h"
#include "service/json.h"
#include "service/policy_audit.h"

namespace headgate::service {
namespace {

using policy::Problem;

constexpr std::string_view kPolicyKey = "layers";
constexpr std::string_view kBeforeJson = "{\"policies\":[";
constexpr std::string_view kBeforeYaml = "policies:\n  -\n";
constexpr std::string_view kIndent = "    ";
constexpr int kYamlLines = 2;  // that kBeforeYaml has

bool is_json(const std::string& text) { return json_of(text).has_value(); }

// One policy as a document of its own.
std::string wrapped(const std::string& text) {
  if (is_json(text)) return std::string(kBeforeJson) + text + "]}";
  std::string out(kBeforeYaml);
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1);
    out += kIndent;
    out.append(text, begin, end - begin + 1);
    begin = end + 1;
  }
  return out;
}

std::string file_of(const std::string& id) { return "policy " + id; }

// Where it stands in the text that came, not in what was made of it.
void unwrap(Problem& problem, const std::map<std::string, std::string>& policies) {
  for (const auto& [id, text] : policies) {
    if (problem.place.file != file_of(id) || problem.place.line == 0) continue;
    if (is_json(text)) {
      if (problem.place.line == 1) problem.place.column -= static_cast<int>(kBeforeJson.size());
    } else {
      problem.place.line -= kYamlLines;
      problem.place.column -= static_cast<int>(kIndent.size());
    }
    problem.place.line = std::max(problem.place.line, 1);
    problem.place.column = std::max(problem.place.column, 1);
    return;
  }
}

Json tiers_json(const std::optional<TierLimits>& tiers) {
  if (!tiers) return nullptr;
  Json json;
  for (int t = 0; t < policy::kTierCount; ++t) {
    const policy::TierLimit& limit = tiers->at(static_cast<std::size_t>(t));
    json[to_string(static_cast<policy::Tier>(t))] = {{"capacity", limit.capacity},
                                                     {"refill_per_minute", limit.refill_per_minute}};
  }
  return json;
}

// `whole`: with the texts of files, too.
std::string layers_json(const Policies::Layers& layers, bool whole) {
  Json json{{"from", layers.from_files ? "files" : "api"}, {"texts", Json::array()}};
  if (whole || !layers.from_files) {
    for (const policy::Text& text : layers.texts) {
      Json& kept = json["texts"].emplace_back(Json{{"file", text.file}, {"text", text.text}});
      if (text.variables) kept["variables"] = true;
    }
  }
  json["policies"] = Json::object();
  for (const auto& [id, text] : layers.policies) json["policies"][id] = text;
  json["deleted"] = layers.deleted;
  json["tiers"] = tiers_json(layers.tiers);
  return text_of(json);
}

// What layers_json() wrote; an Error: it was not.
Result<Policies::Layers> layers_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  try {
    Policies::Layers layers;
    layers.from_files = json.at("from") == "files";
    for (const Json& each : json.at("texts")) {
      layers.texts.push_back({.file = each.at("file").get<std::string>(),
                              .text = each.at("text").get<std::string>(),
                              .variables = each.value("variables", false)});
    }
    for (const auto& [id, of] : json.at("policies").items()) layers.policies[id] = of.get<std::string>();
    for (const Json& id : json.at("deleted")) layers.deleted.insert(id.get<std::string>());
    if (const Json& tiers = json.at("tiers"); !tiers.is_null()) {
      TierLimits& limits = layers.tiers.emplace();
      for (int t = 0; t < policy::kTierCount; ++t) {
        const Json& of = tiers.at(to_string(static_cast<policy::Tier>(t)));
        limits.at(static_cast<std::size_t>(t)) = {of.at("capacity").get<Units>(),
                                                  of.at("refill_per_minute").get<Units>()};
      }
    }
    return layers;
  } catch (const nlohmann::json::exception&) {
    return Error{ErrorCode::kCorrupt, "what was kept of policies set by API cannot be read"};
  }
}

policy::ReadResult read(const Policies::Layers& layers) {
  std::vector<policy::Text> texts = layers.texts;
  for (const auto& [id, text] : layers.policies)
    texts.push_back({.file = file_of(id), .text = wrapped(text), .replaces = true});
  policy::ReadResult result = policy::read_texts(texts, layers.deleted);
  for (Problem& problem : result.problems) unwrap(problem, layers.policies);
  if (layers.tiers) result.document.tiers.limits = *layers.tiers;
  return result;
}

std::optional<Error> too_many_units(const policy::Document& document) {
  std::set<std::string_view> units{"requests"};
  for (const policy::Policy& each : document.policies) units.insert(each.unit);
  if (units.size() <= engine::kMaxUnits) return std::nullopt;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("policies must count at most {} different units, got {}", engine::kMaxUnits, units.size())};
}

// nullptr: there is none.
const policy::Policy* find(const policy::Document& document, const std::string& id) {
  const auto found = std::find_if(document.policies.begin(), document.policies.end(),
                                  [&](const policy::Policy& each) { return each.id == id; });
  return found == document.policies.end() ? nullptr : &*found;
}

// What the audit log keeps of a change: which version it was or became, which policies differ, and `more`, a JSON
// object, unless that is long. The version has all of it.
std::string audited(std::int64_t version, const Json& about, const std::string& more) {
  constexpr std::size_t kMostMore = 32 << 10;  // with fifty ids in each list still less than an entry may have
  Json json{{"version", version}};
  json.update(about);
  if (more.size() > kMostMore) {
    json["omitted_bytes"] = more.size();
  } else if (!more.empty()) {
    json.update(Json::parse(more, nullptr, false));
  }
  return text_of(json);
}

// The policy's text with its id, where it has none: at the end, so that nothing else moves.
std::string named(const std::string& text, const policy::Node& root, const std::string& id) {
  const std::string field = "\"id\": " + text_of(Json(id));
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && text[begin] == '{') {
    std::string out = text;
    const std::size_t end = out.rfind('}');
    if (end != std::string::npos) out.insert(end, (root.entries.empty() ? "" : ", ") + field);
    return out;
  }
  return text + (text.ends_with('\n') ? "" : "\n") + std::string(static_cast<std::size_t>(root.column - 1), ' ') +
         field + "\n";
}

Policies::Changed failed(Error error) {
  Policies::Changed changed;
  changed.error = std::move(error);
  return changed;
}

}  // namespace

std::string Policies::Changed::text() const {
  std::string text = error ? error->message : std::string();
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

Policies::Policies(Service& service, std::vector<std::string> paths) : service_(service), paths_(std::move(paths)) {}

Policies::Changed Policies::refused(Changed changed) {
  const std::lock_guard guard(mutex_);
  ++reloads_.refused;
  return changed;
}

Policies::Changed Policies::apply_locked(Layers next, const Change& change, const Kept& kept) {
  policy::ReadResult result = read(next);
  if (!result.ok()) {
    Changed changed;
    changed.problems = std::move(result.problems);
    return refused(std::move(changed));
  }
  if (std::optional<Error> error = too_many_units(result.document)) return refused(failed(*std::move(error)));
  if (const Result<void> loaded = service_.engine->load(result.document); !loaded) {
    return refused(failed(loaded.error()));
  }
  std::string text = layers_json(next, true);
  std::int64_t version = version_;
  // A restart, or a reload that found nothing new, makes no version.
  if (change.source == "files" && version_ != 0 && text == text_) {
    if (kept) kept({});
  } else {
    state::PolicyVersion made;
    made.time = service_.clock->wall(service_.clock->now());
    made.who = change.who;
    made.source = change.source;
    made.note = change.note;
    made.text = text;
    state::AuditEntry entry;
    entry.time = made.time;
    entry.who = change.who;
    entry.action = change.action;
    entry.target = change.target;
    // Versions are counted up here alone, and the newest is in force.
    if (version_ != 0) entry.before = audited(version_, Json::object(), change.before);
    entry.after = audited(version_ + 1, differences(document_, result.document), change.after);
    version = service_.database->add_version(made, settings_of(next), entry, kept);
  }
  const std::lock_guard guard(mutex_);
  ++reloads_.done;
  layers_ = std::move(next);
  document_ = std::move(result.document);
  version_ = version;
  text_ = std::move(text);
  Changed changed;
  changed.version = version;
  return changed;
}

std::vector<state::Setting> Policies::settings_of(const Layers& layers) {
  state::Setting setting;
  setting.section = kSection;
  setting.key = kPolicyKey;
  const bool nothing = layers.from_files && layers.policies.empty() && layers.deleted.empty() && !layers.tiers;
  if (!nothing) setting.value = layers_json(layers, false);
  return {std::move(setting)};
}

Policies::Changed Policies::with_files_locked(const std::optional<std::string>& kept, const Change& change) {
  Layers next;
  if (kept) {
    Result<Layers> read = layers_of(*kept);
    if (!read) return failed(read.error());
    next = *std::move(read);
  }
  if (next.from_files) {
    policy::Gathered gathered = policy::gather(paths_);
    if (!gathered.problems.empty()) {
      Changed changed;
      changed.problems = std::move(gathered.problems);
      return changed;
    }
    next.texts = std::move(gathered.texts);
  }
  return apply_locked(std::move(next), change);
}

Policies::Changed Policies::start() {
  const std::lock_guard guard(changing_);
  std::optional<std::string> kept;
  for (const state::Setting& setting : service_.database->settings(kSection)) {
    if (setting.key == kPolicyKey) kept = setting.value;
  }
  // What was in force before the stop, so that the audit log can say what differs.
  const Result<std::vector<state::PolicyVersion>> latest = service_.database->versions(1);
  if (!latest) return failed(latest.error());
  if (!latest->empty()) {
    const Result<std::optional<state::PolicyVersion>> last = service_.database->version(latest->front().id);
    if (!last) return failed(last.error());
    if (*last) {
      const std::lock_guard looking(mutex_);
      version_ = (*last)->id;
      text_ = (*last)->text;
      if (const Result<Layers> layers = layers_of(text_)) document_ = read(*layers).document;
    }
  }
  return with_files_locked(kept, {"files", "policies.start", "", "", "", "files", "on start"});
}

Policies::Changed Policies::adopt(const std::optional<std::string>& layers, const std::string& who) {
  const std::lock_guard guard(changing_);
  return with_files_locked(layers,
                           {who, "policies.adopt", "", "", layers.value_or(""), "node", "as another node has it"});
}

Policies::Changed Policies::reload(const std::string& who) {
  const std::lock_guard guard(changing_);
  policy::Gathered gathered = policy::gather(paths_);
  if (!gathered.problems.empty()) {
    Changed changed;
    changed.problems = std::move(gathered.problems);
    return refused(std::move(changed));
  }
  Layers next = layers_;
  if (!next.from_files) {
    // A document put by API stands in for the files; they are read all the same, so that mistakes in them are told.
    policy::ReadResult files = policy::read_texts(gathered.texts);
    Changed changed;
    changed.version = version_;
    changed.problems = std::move(files.problems);
    const std::lock_guard counting(mutex_);
    ++(changed.ok() ? reloads_.done : reloads_.refused);
    return changed;
  }
  next.texts = std::move(gathered.texts);
  return apply_locked(std::move(next), {who, "policies.reload", "", "", "", "files", "files were read again"});
}

Policies::Changed Policies::replace(const std::string& text, const std::string& who, const Kept& kept) {
  const std::lock_guard guard(changing_);
  Layers next;
  next.from_files = false;
  next.texts.push_back({.file = "document", .text = text});
  next.tiers = layers_.tiers;
  const std::string before = text_of(Json{{"policies", document_.policies.size()}});
  const std::string after = text_of(Json{{"text", text}});
  return apply_locked(std::move(next), {who, "policies.replace", "", before, after, "api", "all replaced"}, kept);
}

Policies::Changed Policies::put(const std::string& id, const std::string& text, const std::string& who,
                                const Kept& kept) {
  policy::Tree tree = policy::parse(text);
  if (!tree.flaws.empty()) {
    Changed changed;
    for (const policy::Flaw& flaw : tree.flaws) {
      Problem& problem = changed.problems.emplace_back();
      problem.place.file = file_of(id);
      problem.place.line = flaw.line;
      problem.place.column = flaw.column;
      problem.message = flaw.message;
    }
    return changed;
  }
  const auto is_one = [&] { return tree.flaws.empty() && tree.roots.size() == 1 && tree.roots.front()->is_mapping(); };
  const auto own_id = [&] { return is_one() ? tree.roots.front()->find("id") : nullptr; };
  const bool one = is_one();
  std::string whole = text;
  if (one && own_id() == nullptr) {
    whole = named(text, *tree.roots.front(), id);
    tree = policy::parse(whole);
  }
  const policy::Node* its_id = own_id();
  if (its_id == nullptr || !its_id->is_scalar() || its_id->text != id) {
    const std::string came = !one ? std::string("something else") : its_id == nullptr ? "none" : shown(*its_id);
    return failed({ErrorCode::kInvalidArgument,
                   fmt::format("the body must be one policy whose id is \"{}\", as in the path, got {}", id, came)});
  }
  const std::lock_guard guard(changing_);
  Layers next = layers_;
  const policy::Policy* old = find(document_, id);
  const std::string before = old == nullptr ? std::string() : text_of(written(layers_, *old));
  const std::string after = text_of(Json{{"text", whole}});
  next.policies[id] = std::move(whole);
  next.deleted.erase(id);
  return apply_locked(std::move(next), {who, "policies.put", id, before, after, "api", "put " + id}, kept);
}

Policies::Changed Policies::remove(const std::string& id, const std::string& who, const Kept& kept) {
  const std::lock_guard guard(changing_);
  const policy::Policy* old = find(document_, id);
  if (old == nullptr) {
    return failed({ErrorCode::kNotFound, fmt::format("there is no policy \"{}\" that could be deleted", id)});
  }
  Layers next = layers_;
  const std::string before = text_of(written(layers_, *old));
  next.policies.erase(id);
  next.deleted.insert(id);
  return apply_locked(std::move(next), {who, "policies.delete", id, before, "", "api", "deleted " + id}, kept);
}

Policies::Changed Policies::revert(const std::string& who, const Kept& kept) {
  const std::lock_guard guard(changing_);
  policy::Gathered gathered = policy::gather(paths_);
  if (!gathered.problems.empty()) {
    Changed changed;
    changed.problems = std::move(gathered.problems);
    return changed;
  }
  Layers next;
  next.texts = std::move(gathered.texts);
  next.tiers = layers_.tiers;
  const std::string before = text_of(Json{{"policies", document_.policies.size()}});
  return apply_locked(std::move(next), {who, "policies.revert", "", before, "", "api", "back to the files"}, kept);
}

Policies::Changed Policies::set_tiers(const std::optional<TierLimits>& limits, const std::string& who,
                                      const Kept& kept) {
  const std::lock_guard guard(changing_);
  Layers next = layers_;
  next.tiers = limits;
  const auto shown_json = [](const std::optional<TierLimits>& tiers) {
    return tiers ? text_of(tiers_json(tiers)) : std::string();
  };
  const std::string before = shown_json(document_.tiers.limits);
  return apply_locked(std::move(next),
                      {who, "defaults.set", "", before, shown_json(limits), "api", "tier defaults changed"}, kept);
}

Policies::Changed Policies::rollback(std::int64_t version, const std::string& who, const Kept& kept) {
  const std::lock_guard guard(changing_);
  const Result<std::optional<state::PolicyVersion>> old = service_.database->version(version);
  if (!old) return failed(old.error());
  if (!*old) return failed({ErrorCode::kNotFound, fmt::format("there is no version {}", version)});
  Result<Layers> layers = layers_of((*old)->text);
  if (!layers) return failed(layers.error());
  // The files may read differently by now: what they said then is what is asked for, unless they say it still.
  if (layers->from_files && layers->texts != policy::gather(paths_).texts) layers->from_files = false;
  const std::string after = text_of(Json{{"restored", version}});
  return apply_locked(*std::move(layers),
                      {who, "policies.rollback", std::to_string(version), "", after, "rollback",
                       fmt::format("back to version {}", version)},
                      kept);
}

policy::ReadResult Policies::validate(const std::string& text) {
  policy::ReadResult result = policy::read_text(text, "document");
  if (!result.ok()) return result;
  if (const std::optional<Error> error = too_many_units(result.document)) {
    Problem& problem = result.problems.emplace_back();
    problem.place.file = "document";
    problem.message = error->message;
  }
  return result;
}

Policies::View Policies::view() const {
  const std::lock_guard guard(mutex_);
  return {layers_, version_, document_};
}

std::int64_t Policies::version() const {
  const std::lock_guard guard(mutex_);
  return version_;
}

std::string Policies::stream(const Layers& layers) {
  if (layers.texts.size() == 1) return layers.texts.front().text;
  std::string out;
  for (const policy::Text& text : layers.texts) {
    out += fmt::format("---\n# {}\n{}", text.file, text.text);
    if (!text.text.ends_with('\n')) out += '\n';
  }
  return out;
}

Policies::Reloads Policies::reloads() const {
  const std::lock_guard guard(mutex_);
  return reloads_;
}

}  // namespace headgate::service

#include "cluster/spread.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "cluster/shared_store.h"
#include "cluster/spread_scripts.h"
#include "observe/log.h"
#include "service/settings.h"

namespace headgate::cluster {
namespace {

using observe::log;
using observe::LogLevel;
using store::redis::Command;
using store::redis::Reply;

constexpr std::string_view kLoadField = "load/reported";
constexpr std::array<const char*, 6> kSpreadSections{"override", "exempt",     "emergency",
                                                     "policy",   "quota_plan", "quota_rule"};

std::string field_name(const state::Setting& setting) { return setting.section + '/' + setting.key; }

bool is_spread(std::string_view section) {
  for (const char* each : kSpreadSections) {
    if (section == each) return true;
  }
  return false;
}

struct LoadReport {
  double load = 0;
  Nanos at{0};  // wall clock
};
std::string text_of(const LoadReport& report) { return fmt::format("{} {}", report.load, report.at.count()); }
// At the epoch: it cannot be read.
LoadReport load_of(std::string_view text) {
  LoadReport report;
  std::int64_t at = 0;
  const char* end = text.data() + text.size();
  const auto load = std::from_chars(text.data(), end, report.load);
  if (load.ec != std::errc{} || load.ptr == end || std::from_chars(load.ptr + 1, end, at).ec != std::errc{}) return {};
  report.at = Nanos{at};
  return report;
}

// Of two reports of load the later one counts, whichever reached Redis first; to forget them has no time of its own.
bool is_later(const std::optional<std::string>& report, const std::optional<std::string>& than) {
  return !report || (than && load_of(*report).at > load_of(*than).at);
}

state::Setting setting_of(std::string_view name, const std::optional<std::string>& value) {
  const std::size_t slash = name.find('/');
  return {std::string(name.substr(0, slash)), std::string(name.substr(slash + 1)), value};
}

bool ask(store::redis::Caller& redis, Command command, const std::function<bool(const Reply&)>& read) {
  bool good = false;
  ask_and_wait(redis, std::move(command), [&](const Result<Reply>& reply) { good = reply && read(*reply); });
  return good;
}

Command script_call(const store::redis::Script& script, std::span<const std::string_view> keys,
                    std::span<const std::string> arguments) {
  Command command;
  append_call(script, keys, arguments, command.wire);
  command.slot = store::redis::slot_of(keys[0]);
  command.script = &script;
  return command;
}

}  // namespace

Spread::Spread(store::redis::Caller& redis, service::Service& service, service::Policies& policies,
               SpreadOptions options)
    : redis_(redis),
      service_(service),
      policies_(policies),
      options_(std::move(options)),
      fields_key_(options_.prefix + "{control}:fields"),
      version_key_(options_.prefix + "{control}:version"),
      nodes_key_(options_.prefix + "{control}:nodes"),
      seed_key_(seed_key(options_.prefix)),
      // A Redis that other nodes have filled has another seed: what was agreed on with that one means nothing to it.
      agreed_section_(fmt::format("agreed {}", options_.seed)) {
  service_.database->listen([this](std::span<const state::Setting> settings) { changed(settings); });
}

Spread::~Spread() {
  service_.database->listen({});
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Spread::start() {
  recall();
  (void)step();  // so that a node that joins others answers as they do from its first check on
  thread_ = std::thread([this] { run(); });
}

void Spread::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    wake_.wait_for(lock, options_.every, [&] { return ending_ || !unsent_.empty(); });
    if (ending_) break;
    lock.unlock();
    const bool answered = step();
    watch_cause(answered);
    lock.lock();
    // What could not be sent waits for the next turn, not for the next change.
    if (!answered) wake_.wait_for(lock, options_.every, [&] { return ending_; });
  }
}

std::size_t Spread::unsent() const {
  const std::lock_guard guard(mutex_);
  return unsent_.size();
}

void Spread::changed(std::span<const state::Setting> settings) {
  const std::lock_guard guard(mutex_);
  for (const state::Setting& setting : settings) {
    if (!is_spread(setting.section)) continue;
    const std::string name = field_name(setting);
    const auto last = last_.find(name);
    // What came from Redis goes on disk here as well: it is not news. Back to what it was is, if that was to change.
    const bool known = last == last_.end() ? !setting.value : last->second == setting.value;
    if (known && (!unsent_.contains(name) || again_.contains(name))) continue;
    unsent_[name] = setting.value;
    again_.erase(name);
  }
  if (!unsent_.empty()) wake_.notify_all();
}

void Spread::load_reported(std::optional<double> load) {
  const std::lock_guard guard(mutex_);
  Value value;
  if (load) value = text_of({*load, wall()});
  unsent_[std::string(kLoadField)] = std::move(value);
  again_.erase(std::string(kLoadField));
  wake_.notify_all();
}

// What was agreed on before a restart. Whatever stands otherwise in the settings was changed here since, or before this
// node met the others.
void Spread::recall() {
  std::map<std::string, Value> here;
  for (const char* section : kSpreadSections) {
    for (const state::Setting& setting : service_.database->settings(section)) {
      here.emplace(field_name(setting), setting.value);
    }
  }
  const std::vector<state::Setting> agreed = service_.database->settings(agreed_section_);
  const std::lock_guard guard(mutex_);
  for (const state::Setting& setting : agreed) {
    std::optional<Field> field = field_of(setting.value.value_or(""));
    if (!field) continue;
    seen_[setting.key] = field->version;
    const auto found = here.find(setting.key);
    Value mine = found == here.end() ? std::nullopt : found->second;
    if (mine != field->value) unsent_[setting.key] = std::move(mine);
    last_[setting.key] = std::move(field->value);
    if (found != here.end()) here.erase(found);
  }
  for (auto& [name, value] : here) unsent_[name] = std::move(value);
}

void Spread::note(std::span<const std::string> names) {
  std::vector<state::Setting> agreed;
  {
    const std::lock_guard guard(mutex_);
    for (const std::string& name : names) {
      if (name == kLoadField) continue;
      agreed.push_back({agreed_section_, name, line_of(Field{seen_[name], options_.node, last_[name]})});
    }
  }
  if (agreed.empty()) return;
  if (const Result<void> noted = service_.database->note(agreed); !noted) {
    log(LogLevel::kError, "what all nodes have agreed on could not be noted; after a restart it may read as a conflict",
        {{"problem", noted.error().message}});
  }
}

// "<version> <node> =<value>", or "-" in place of a value.
std::optional<Spread::Field> Spread::field_of(std::string_view text) {
  Field field;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), field.version);
  const std::size_t node = static_cast<std::size_t>(end - text.data()) + 1;
  const std::size_t mark = failed == std::errc{} ? text.find(' ', node) : std::string_view::npos;
  if (mark == std::string_view::npos || mark + 1 >= text.size()) return std::nullopt;
  field.node = text.substr(node, mark - node);
  if (text[mark + 1] == '=') field.value = text.substr(mark + 2);
  return field;
}

std::string Spread::line_of(const Field& field) {
  return fmt::format("{} {} {}", field.version, field.node, field.value ? "=" + *field.value : "-");
}

bool Spread::step() {
  std::int64_t revision = 0;
  if (!beat(revision)) return false;
  if (revision != revision_) {
    if (!fetch()) return false;
    revision_ = revision;
  }
  return send();
}

bool Spread::beat(std::int64_t& revision) {
  const std::array<std::string_view, 3> keys{version_key_, nodes_key_, seed_key_};
  const std::string seed = std::to_string(options_.seed);
  const std::string cause = service_.engine->controls().emergency().node;
  const std::array<std::string, 4> arguments{options_.node, std::to_string(options_.gone_after.count() / 1000), seed,
                                             cause};
  std::int64_t nodes = 0;
  bool same_seed = true;
  bool cause_there = false;
  const bool good = ask(redis_, script_call(beat_script(), keys, arguments), [&](const Reply& reply) {
    if (reply.size() != 4 || !reply[0].is_integer() || !reply[1].is_integer() || !reply[2].is_text()) return false;
    revision = reply[0].integer();
    nodes = reply[1].integer();
    same_seed = reply[2].text() == seed;
    cause_there = reply[3].is_integer() && reply[3].integer() == 1;
    return true;
  });
  if (!good) return false;
  if (cause_there) cause_ = {cause, service_.clock->now()};
  if (!same_seed && !std::exchange(estranged_, true)) {
    const char* text =
        "other servers of this store hash keys by another seed, so limits are not shared with them: restart this one";
    log(LogLevel::kError, text);
    service_.notices->tell({.kind = "store_problem", .time = wall(), .text = text});
  }
  const auto heard = static_cast<std::size_t>(std::max<std::int64_t>(nodes, 1));
  nodes_.store(heard, std::memory_order_relaxed);
  return true;
}

void Spread::watch_cause(bool answered) {
  const std::string node = service_.engine->controls().emergency().node;
  const Nanos now = service_.clock->now();
  // After an outage of Redis the other node is given time to be heard of again.
  const bool back = !std::exchange(answered_, answered) && answered;
  if (node != cause_.node || back) cause_ = {node, now};
  const Nanos patience = answered ? options_.gone_after : control::kLoadSourceTtl;
  if (!node.empty() && now - cause_.heard_at >= patience) service_.engine->controls().emergency_node_lost(node);
}

bool Spread::fetch() {
  std::map<std::string, Field> fields;
  Command command;
  const std::array<std::string_view, 2> words{"HGETALL", fields_key_};
  store::redis::append_words(words, command.wire);
  command.slot = store::redis::slot_of(fields_key_);
  const bool good = ask(redis_, std::move(command), [&](const Reply& reply) {
    if (!reply.is_array()) return false;
    for (std::size_t i = 0; i + 1 < reply.size(); i += 2) {
      if (!reply[i].is_text() || !reply[i + 1].is_text()) continue;
      std::optional<Field> field = field_of(reply[i + 1].text());
      if (!field) continue;
      fields.emplace(reply[i].text(), *std::move(field));
    }
    return true;
  });
  if (!good) return false;
  hand_on_again(fields);
  std::vector<std::string> applied;
  for (const auto& [name, field] : fields) {
    if (field.version > seen_[name] && apply(name, field)) applied.push_back(name);
  }
  note(applied);
  return true;
}

// What Redis has no more, or only as it was before: it was emptied, or a replica took over that lagged behind. Another
// node may know of a later change that Redis had heard of and lost: so it goes under the version that it had.
void Spread::hand_on_again(const std::map<std::string, Field>& fields) {
  std::size_t forgotten = 0;
  {
    const std::lock_guard guard(mutex_);
    for (const auto& [name, value] : last_) {
      const auto found = fields.find(name);
      const std::int64_t there = found == fields.end() ? 0 : found->second.version;
      const std::int64_t seen = seen_[name];
      if (there >= seen || !unsent_.emplace(name, value).second) continue;  // or it was changed here since
      again_[name] = seen;
      ++forgotten;
    }
  }
  if (forgotten == 0) return;
  log(LogLevel::kWarn, "Redis has forgotten what operators had set; this node hands it on again",
      {{"settings", std::to_string(forgotten)}});
}

bool Spread::apply(const std::string& name, const Field& field) {
  seen_[name] = field.version;
  {
    const std::lock_guard guard(mutex_);
    const auto [last, first] = last_.try_emplace(name);
    const bool known = !first && last->second == field.value;  // another node has handed it on again
    last->second = field.value;
    if (again_.erase(name) > 0) unsent_.erase(name);  // there is a newer one
    if (const auto mine = unsent_.find(name); mine != unsent_.end()) {
      const bool same = mine->second == field.value;
      // What was changed here since is yet to be sent: this is what it was before, or was sent by this node without
      // hearing that it arrived.
      if (!same && (known || field.node == options_.node)) return true;
      if (name == kLoadField) {
        if (is_later(mine->second, field.value)) return true;
      } else if (!same) {
        // What was changed here meanwhile has lost: the other change reached Redis first.
        conflict(name, mine->second, field);
      }
      unsent_.erase(mine);
    }
    if (known) return true;
  }
  const std::string who = "node " + field.node;
  if (name == kLoadField) {
    if (!field.value) {
      service_.engine->controls().clear_load_report();
    } else if (const auto [load, at] = load_of(*field.value); at > Nanos{0}) {
      service_.engine->controls().report_load(load, wall() - at);
    }
    return true;
  }
  const state::Setting setting = setting_of(name, field.value);
  if (!is_spread(setting.section)) return false;  // of a newer version, perhaps
  Value before;
  for (const state::Setting& each : service_.database->settings(setting.section)) {
    if (each.key == setting.key) before = each.value;
  }
  if (before == field.value) return true;  // it is in force here already
  Result<void> done;
  if (setting.section == service::Policies::kSection) {
    if (const service::Policies::Changed adopted = policies_.adopt(field.value, who); !adopted.ok()) {
      done = Error{ErrorCode::kInvalidArgument, adopted.text()};
    }
  } else {
    state::AuditEntry entry;
    entry.time = wall();
    entry.who = who;
    entry.action = setting.section + (field.value ? ".set" : ".clear");
    entry.target = setting.key;
    entry.before = before.value_or("");
    entry.after = field.value.value_or("");
    // In force first: a disk that refuses must not keep the other nodes' brake from this one.
    service_.database->change({&setting, 1}, entry, {});
    done = service::apply_setting(service_, setting);
    if (done && setting.section == "emergency") {
      const control::Emergency state = service_.engine->controls().emergency();
      service_.notices->tell({.kind = "emergency",
                              .time = wall(),
                              .agent = state.by,
                              .text = state.active ? state.reason : "turned off",
                              .value = state.active ? 1.0 : 0.0});
    }
  }
  if (!done) {
    log(LogLevel::kError, "what another node has set could not be taken over",
        {{"node", field.node}, {"setting", name}, {"problem", done.error().message}});
  }
  return done.has_value();
}

void Spread::conflict(const std::string& name, const Value& lost, const Field& kept) {
  const std::string text =
      fmt::format("{} was changed here and on node {} at the same time; that node's change is kept", name, kept.node);
  log(LogLevel::kWarn, "conflicting changes", {{"setting", name}, {"kept_from", kept.node}});
  service_.notices->tell({.kind = "control_conflict",
                          .time = wall(),
                          .text = fmt::format("{}: kept {}, lost {}", text, kept.value.value_or("(removed)"),
                                              lost.value_or("(removed)"))});
}

bool Spread::send() {
  std::vector<std::pair<std::string, Value>> sending;
  std::vector<std::int64_t> versions;  // 0: it is new
  {
    const std::lock_guard guard(mutex_);
    constexpr std::size_t kAtOnce = 500;
    for (const auto& change : unsent_) {
      if (sending.size() >= kAtOnce) break;
      sending.emplace_back(change);
      const auto again = again_.find(change.first);
      versions.push_back(again == again_.end() ? 0 : again->second);
    }
  }
  if (sending.empty()) return true;
  std::vector<std::string> arguments{options_.node};
  for (std::size_t i = 0; i < sending.size(); ++i) {
    const auto& [name, value] = sending[i];
    arguments.push_back(name);
    arguments.push_back(std::to_string(seen_[name]));
    arguments.push_back(std::to_string(versions[i]));
    arguments.push_back(value ? "=" + *value : std::string("-"));
  }
  const std::array<std::string_view, 2> keys{fields_key_, version_key_};
  revision_ = -1;  // another than was fetched from now on, also if Redis loses all of it before the next beat
  // For each: the version it was written under, or 0 where a newer one was there, or what was to be handed on again.
  std::vector<std::int64_t> written;
  const bool good = ask(redis_, script_call(put_script(), keys, arguments), [&](const Reply& reply) {
    if (reply.size() != sending.size()) return false;
    for (std::size_t i = 0; i < reply.size(); ++i) written.push_back(reply[i].is_integer() ? reply[i].integer() : 0);
    return true;
  });
  if (!good) return false;
  bool refused = false;
  std::vector<std::string> taken;
  {
    const std::lock_guard guard(mutex_);
    for (std::size_t i = 0; i < sending.size(); ++i) {
      const auto& [name, value] = sending[i];
      const auto mine = unsent_.find(name);
      const auto again = again_.find(name);
      // Handed on, by this node or by another before it; unless it was changed here since.
      if (again != again_.end() && again->second == versions[i]) {
        again_.erase(again);
        unsent_.erase(mine);
      } else if (written[i] != 0 && mine != unsent_.end() && mine->second == value) {
        unsent_.erase(mine);
      }
      if (written[i] == 0) {
        refused = true;
        continue;  // fetch() finds the one that won
      }
      seen_[name] = written[i];
      last_[name] = value;
      taken.push_back(name);
    }
  }
  note(taken);
  return !refused || fetch();
}

}  // namespace headgate::cluster

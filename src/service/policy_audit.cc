#include "service/policy_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/node.h"

namespace headgate::service {
namespace {

using policy::Node;
using policy::Policy;

using ById = std::map<std::string_view, const Policy*>;

ById by_id(const policy::Document& document) {
  ById all;
  for (const Policy& each : document.policies) all.emplace(each.id, &each);
  return all;
}

bool means_the_same(Policy a, const Policy& b) {
  a.place = b.place;
  return a == b;
}

void add_list(const char* name, const std::vector<std::string_view>& ids, Json& to) {
  if (ids.empty()) return;
  Json list = Json::array();
  const std::size_t told = std::min(ids.size(), kMostTold);
  for (std::size_t i = 0; i < told; ++i) list.push_back(ids[i]);
  if (told < ids.size()) list.push_back(fmt::format("and {} more", ids.size() - told));
  to[name] = std::move(list);
}

const Node* mapping_at(const Node& node, const policy::Place& place) {
  if (node.is_mapping() && node.line == place.line && node.column == place.column) return &node;
  for (const Node* item : node.items) {
    if (const Node* found = mapping_at(*item, place)) return found;
  }
  for (const policy::Entry& entry : node.entries) {
    if (const Node* found = mapping_at(*entry.value, place)) return found;
  }
  return nullptr;
}

Json json_of_node(const Node& node) {
  if (node.is_null()) return nullptr;
  if (node.is_sequence()) {
    Json list = Json::array();
    for (const Node* item : node.items) list.push_back(json_of_node(*item));
    return list;
  }
  if (node.is_mapping()) {
    Json object = Json::object();
    for (const policy::Entry& entry : node.entries) object[entry.key] = json_of_node(*entry.value);
    return object;
  }
  if (node.is_boolean()) return node.is_true();
  if (node.quoted) return node.text;
  Json number = Json::parse(node.text, nullptr, false);
  return number.is_number() ? number : Json(node.text);
}

}  // namespace

Json differences(const policy::Document& before, const policy::Document& after) {
  const ById old = by_id(before);
  const ById now = by_id(after);
  std::vector<std::string_view> added;
  std::vector<std::string_view> changed;
  std::vector<std::string_view> removed;
  for (const auto& [id, policy] : now) {
    const auto was = old.find(id);
    if (was == old.end()) {
      added.push_back(id);
    } else if (!means_the_same(*policy, *was->second)) {
      changed.push_back(id);
    }
  }
  for (const auto& [id, policy] : old) {
    if (!now.contains(id)) removed.push_back(id);
  }
  Json json = Json::object();
  add_list("added", added, json);
  add_list("changed", changed, json);
  add_list("removed", removed, json);
  return json;
}

Json written(const Policies::Layers& layers, const Policy& policy) {
  if (const auto put = layers.policies.find(policy.id); put != layers.policies.end()) return {{"text", put->second}};
  Json json{{"source", "document"}};
  for (const policy::Text& text : layers.texts) {
    if (text.file != policy.place.file) continue;
    const policy::Tree tree = policy::parse(text.text);
    for (const Node* root : tree.roots) {
      const Node* node = mapping_at(*root, policy.place);
      if (node == nullptr) continue;
      json["file"] = text.file;
      json["line"] = policy.place.line;
      json["policy"] = json_of_node(*node);
      return json;
    }
  }
  return json;
}

}  // namespace headgate::service

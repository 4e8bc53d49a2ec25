#include "cli/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace headgate::cli {

using nlohmann::ordered_json;

Nanos milliseconds(double count) {
  constexpr double kMost = 9e12;
  return std::chrono::milliseconds{static_cast<std::int64_t>(std::clamp(count, 0.0, kMost))};
}

const ordered_json* JsonFields::find(const char* key) const {
  if (!json_->is_object()) return nullptr;
  const auto at = json_->find(key);
  return at == json_->end() || at->is_null() ? nullptr : &*at;
}

bool JsonFields::has(const char* key) const { return find(key) != nullptr; }

bool JsonFields::flag(const char* key) const {
  const ordered_json* value = find(key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

double JsonFields::number(const char* key, double otherwise) const {
  const ordered_json* value = find(key);
  return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
}

std::uint64_t JsonFields::count(const char* key) const {
  constexpr double kMost = 9e15;
  return static_cast<std::uint64_t>(std::clamp(number(key), 0.0, kMost));
}

std::string JsonFields::text(const char* key) const {
  const ordered_json* value = find(key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::string JsonFields::text_or_number(const char* key) const {
  const ordered_json* value = find(key);
  if (value == nullptr) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

std::vector<std::string> JsonFields::texts(const char* key) const {
  std::vector<std::string> all;
  for (const ordered_json& value : list(key)) {
    if (value.is_string()) all.push_back(value.get<std::string>());
  }
  return all;
}

const ordered_json& JsonFields::list(const char* key) const {
  static const ordered_json kEmpty = ordered_json::array();
  const ordered_json* value = find(key);
  return value != nullptr && value->is_array() ? *value : kEmpty;
}

JsonFields JsonFields::object(const char* key) const {
  static const ordered_json kEmpty = ordered_json::object();
  const ordered_json* value = find(key);
  return JsonFields(value != nullptr && value->is_object() ? *value : kEmpty);
}

}  // namespace headgate::cli

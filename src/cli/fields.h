// Fields of a server's JSON, read without trust: what is missing or of another type reads as nothing, so that an older
// or newer server can be asked too.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headgate/clock.h"

namespace headgate::cli {

// A span or an instant that a server has told, within what fits.
[[nodiscard]] inline Nanos milliseconds(double count) {
  constexpr double kMost = 9e12;
  return std::chrono::milliseconds{static_cast<std::int64_t>(std::clamp(count, 0.0, kMost))};
}

// Borrows the JSON.
class Fields {
 public:
  explicit Fields(const nlohmann::ordered_json& json) : json_(&json) {}

  [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr && !find(key)->is_null(); }
  [[nodiscard]] bool flag(const char* key) const {
    const auto* value = find(key);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }
  [[nodiscard]] double number(const char* key, double otherwise = 0) const {
    const auto* value = find(key);
    return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
  }
  [[nodiscard]] std::uint64_t count(const char* key) const {
    constexpr double kMost = 9e15;
    const double value = number(key);
    return value > 0 ? static_cast<std::uint64_t>(value < kMost ? value : kMost) : 0;
  }
  [[nodiscard]] std::string text(const char* key) const {
    const auto* value = find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }
  // The text of what may be a text or a number, such as an id.
  [[nodiscard]] std::string text_or_number(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr || value->is_null()) return {};
    return value->is_string() ? value->get<std::string>() : value->dump();
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    for (const auto& value : list(key)) {
      if (value.is_string()) all.push_back(value.get<std::string>());
    }
    return all;
  }
  [[nodiscard]] const nlohmann::ordered_json& list(const char* key) const {
    static const nlohmann::ordered_json kEmpty = nlohmann::ordered_json::array();
    const auto* value = find(key);
    return value != nullptr && value->is_array() ? *value : kEmpty;
  }
  [[nodiscard]] Fields object(const char* key) const {
    static const nlohmann::ordered_json kEmpty = nlohmann::ordered_json::object();
    const auto* value = find(key);
    return Fields(value != nullptr && value->is_object() ? *value : kEmpty);
  }

 private:
  [[nodiscard]] const nlohmann::ordered_json* find(const char* key) const {
    if (!json_->is_object()) return nullptr;
    const auto at = json_->find(key);
    return at == json_->end() ? nullptr : &*at;
  }
  const nlohmann::ordered_json* json_;
};

}  // namespace headgate::cli

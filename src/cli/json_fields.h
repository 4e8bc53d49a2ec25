// Fields of a server's JSON. A field that is missing or of another type reads as empty, so that older and newer servers
// can be queried too.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "headgate/clock.h"

namespace headgate::cli {

// A span or an instant, clamped to what fits.
[[nodiscard]] Nanos milliseconds(double count);

// Borrows the JSON.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::ordered_json& json) : json_(&json) {}

  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] bool flag(const char* key) const;
  [[nodiscard]] double number(const char* key, double otherwise = 0) const;
  [[nodiscard]] std::uint64_t count(const char* key) const;
  [[nodiscard]] std::string text(const char* key) const;
  // The text of what may be a text or a number, such as an id.
  [[nodiscard]] std::string text_or_number(const char* key) const;
  [[nodiscard]] std::vector<std::string> texts(const char* key) const;
  [[nodiscard]] const nlohmann::ordered_json& list(const char* key) const;
  [[nodiscard]] JsonFields object(const char* key) const;

 private:
  [[nodiscard]] const nlohmann::ordered_json* find(const char* key) const;
  const nlohmann::ordered_json* json_;
};

}  // namespace headgate::cli

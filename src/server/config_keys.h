// Every key of the configuration, once: its path, what it does, how it is read and how it is written.
//
// Files, HEADGATE_* variables, flags, --print-config and the sample all go by this table.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/config.h"

namespace headgate::server {

// What was given for a key, wherever.
struct Value {
  std::vector<std::string> items;  // one, unless it is a list
  bool list = false;               // given as a list
  std::string shown;               // for messages: "x", 12, a list
};

struct ConfigKey {
  std::string path;  // "listen.http"
  std::string doc;   // for people; lines are separated by \n
  bool is_list = false;
  std::function<bool(const Config&)> is_secret{};  // whether its value is not for eyes; none: it never is
  // What must hold and does not; empty: it is set.
  std::function<std::string(Config&, const Value&)> set;
  // As YAML.
  std::function<std::string(const Config&)> get;

  [[nodiscard]] std::string section() const;   // "listen"; empty: none
  [[nodiscard]] std::string name() const;      // "http"
  [[nodiscard]] std::string variable() const;  // "HEADGATE_LISTEN_HTTP"
};

// In the order of the sample.
[[nodiscard]] std::span<const ConfigKey> config_keys();
// What a section is about; empty: it has no name of its own.
[[nodiscard]] std::string_view section_doc(std::string_view section) noexcept;

}  // namespace headgate::server

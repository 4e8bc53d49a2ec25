// A check as options of a command spell it: for asking a server, and for explaining it from files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "engine/line_fields.h"
#include "headgate/result.h"

namespace headgate::cli {

class CheckOptions {
 public:
  // --agent, --operation and so on, --attr and --cost. The options keep what they were told in *this, which must stay
  // where it is.
  void add_to(Arguments arguments);

  // The texts belong to the options.
  [[nodiscard]] Result<void> read(engine::LineFields& fields) const;
  // The same, as the body of a check.
  [[nodiscard]] Result<nlohmann::ordered_json> json() const;
  // "CREATE_COMPONENT by A".
  [[nodiscard]] std::string subject() const;

 private:
  [[nodiscard]] std::string text_of(engine::Field field) const;

  std::vector<std::pair<engine::Field, std::string>> fields_;
  std::vector<std::string> attributes_;
  std::vector<std::string> costs_;
};

}  // namespace headgate::cli

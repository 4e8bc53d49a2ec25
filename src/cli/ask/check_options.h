// The options of a command that describe a check.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "engine/line_fields.h"
#include "headgate/result.h"

namespace headgate::cli {

// The options of CheckOptions, for the help of commands that have them.
#define HEADGATE_CLI_CHECK_HELP                                           \
  "The check:\n"                                                          \
  "  --agent A --operation OP --session S --user U --tenant T --plan P\n" \
  "  --channel C --ip IP --resource R\n"                                  \
  "  --context TYPE      type of the context\n"                           \
  "  --attr NAME=VALUE   attribute of the context; may be repeated\n"     \
  "  --cost N            cost, as a number or UNIT=N; may be repeated\n"  \
  "  --parent S          root session whose budgets are charged as well\n"

class CheckOptions {
 public:
  // --agent, --operation and so on, --attr and --cost. Parsing writes to *this, which must not move.
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

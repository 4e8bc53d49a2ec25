#include "cli/ask/check_options.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/view/describe.h"

namespace headgate::cli {
namespace {

using engine::Field;
using nlohmann::ordered_json;

constexpr std::pair<const char*, Field> kFields[] = {
    {"--agent", Field::kAgent},       {"--operation", Field::kOperation},
    {"--session", Field::kSession},   {"--user", Field::kUser},
    {"--tenant", Field::kTenant},     {"--plan", Field::kPlan},
    {"--channel", Field::kChannel},   {"--ip", Field::kIp},
    {"--resource", Field::kResource}, {"--context", Field::kContextType},
    {"--parent", Field::kParent}};

Result<void> set(engine::LineFields& fields, Field field, std::string_view part, std::string_view text) {
  engine::Scalar value;
  value.kind = engine::Scalar::Kind::kUntyped;
  value.text = text;
  return fields.set(field, part, value);
}

}  // namespace

void CheckOptions::add_to(Arguments arguments) {
  for (const auto& [name, field] : kFields) {
    const Field which = field;
    arguments.option(name, [this, which](const std::string& text) { fields_.emplace_back(which, text); });
  }
  arguments.option("--attr", attributes_).one_value_each();
  arguments.option("--cost", costs_).one_value_each();
}

Result<void> CheckOptions::read(engine::LineFields& fields) const {
  for (const auto& [field, text] : fields_) {
    if (Result<void> done = set(fields, field, {}, text); !done) return done;
  }
  for (const std::string& attribute : attributes_) {
    const std::size_t equals = attribute.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("--attr must be NAME=VALUE, got \"{}\"", attribute)};
    }
    const std::string_view text = attribute;
    if (Result<void> done = set(fields, Field::kContext, text.substr(0, equals), text.substr(equals + 1)); !done) {
      return done;
    }
  }
  for (const std::string& cost : costs_) {
    const std::size_t equals = cost.find('=');
    const std::string_view text = cost;
    const std::string_view unit = equals == std::string::npos ? std::string_view() : text.substr(0, equals);
    const std::string_view amount = equals == std::string::npos ? text : text.substr(equals + 1);
    if (Result<void> done = set(fields, Field::kCost, unit, amount); !done) return done;
  }
  fields.finish();
  return {};
}

Result<ordered_json> CheckOptions::json() const {
  // Validated here first, so that an invalid check is reported without a server.
  engine::LineFields read_fields;
  if (Result<void> done = read(read_fields); !done) return std::move(done).error();
  if (read_fields.check.operation.empty()) return Error{ErrorCode::kInvalidArgument, "--operation is needed"};
  ordered_json json;
  for (const auto& [option, field] : kFields) {
    const std::string text = text_of(field);
    if (text.empty()) continue;
    if (field == Field::kContextType) {
      json["context"]["type"] = text;
    } else {
      json[std::string(engine::name_of(field))] = text;
    }
  }
  for (const Attribute& attribute : read_fields.attributes) {
    ordered_json& value = json["context"][std::string(attribute.name)];
    if (attribute.value.kind == Value::Kind::kBoolean) {
      value = attribute.value.boolean;
    } else {
      value = std::string(attribute.value.text);
    }
  }
  for (const Cost& cost : read_fields.costs) json["cost"][std::string(cost.unit)] = number_json(cost.amount);
  return json;
}

std::string CheckOptions::text_of(Field field) const {
  for (const auto& [which, text] : fields_) {
    if (which == field) return text;
  }
  return {};
}

std::string CheckOptions::subject() const {
  std::string text = text_of(Field::kOperation);
  if (const std::string agent = text_of(Field::kAgent); !agent.empty()) text += " by " + agent;
  return text;
}

}  // namespace headgate::cli

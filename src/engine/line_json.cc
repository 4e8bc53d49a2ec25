// JSON objects into LineFields. The only place that knows simdjson.
#include <absl/container/inlined_vector.h>
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <new>

#include "engine/line_fields.h"

namespace headgate::engine {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kDeepest = 16;

Error refused(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Scalar scalar_of(const dom::element& element) noexcept {
  Scalar scalar;
  switch (element.type()) {
    case dom::element_type::STRING: scalar.text = element.get_string().value_unsafe(); break;
    case dom::element_type::INT64:
      scalar.kind = Scalar::Kind::kInteger;
      scalar.integer = element.get_int64().value_unsafe();
      scalar.number = static_cast<double>(scalar.integer);
      break;
    case dom::element_type::UINT64:  // only those that no int64 holds
      scalar.kind = Scalar::Kind::kNumber;
      scalar.number = static_cast<double>(element.get_uint64().value_unsafe());
      break;
    case dom::element_type::DOUBLE:
      scalar.kind = Scalar::Kind::kNumber;
      scalar.number = element.get_double().value_unsafe();
      break;
    case dom::element_type::BOOL:
      scalar.kind = Scalar::Kind::kBoolean;
      scalar.boolean = element.get_bool().value_unsafe();
      break;
    case dom::element_type::ARRAY:
      scalar.kind = Scalar::Kind::kOther;
      scalar.text = "a list";
      break;
    case dom::element_type::OBJECT:
      scalar.kind = Scalar::Kind::kOther;
      scalar.text = "an object";
      break;
    case dom::element_type::NULL_VALUE:
      scalar.kind = Scalar::Kind::kOther;
      scalar.text = "null";
      break;
  }
  return scalar;
}

Result<void> set_parts(Field field, const dom::object& parts, LineFields& fields) {
  // The setter tells attributes and units that came before, but not these few.
  absl::InlinedVector<std::string_view, 4> seen;
  for (const auto& [part, value] : parts) {
    if (part.empty()) return refused(fmt::format("{} must not have a part without a name", name_of(field)));
    if (field != Field::kCost && (field != Field::kContext || part == "type")) {
      if (std::find(seen.begin(), seen.end(), part) != seen.end()) {
        return refused(fmt::format("{}.{} must be given once, is given twice", name_of(field), part));
      }
      seen.push_back(part);
    }
    if (Result<void> set = fields.set(field, part, scalar_of(value)); !set) return set;
  }
  if (field == Field::kParent && fields.check.parent_session.empty()) return refused(kParentWithoutSession);
  fields.given |= set_of(field);
  return {};
}

}  // namespace

struct JsonLine::Parser {
  dom::parser dom{kMaxLineBytes};
};

JsonLine::JsonLine() : parser_(std::make_unique<Parser>()) {
  if (parser_->dom.allocate(4096, kDeepest) != simdjson::SUCCESS) throw std::bad_alloc();
}
JsonLine::~JsonLine() = default;
JsonLine::JsonLine(JsonLine&&) noexcept = default;
JsonLine& JsonLine::operator=(JsonLine&&) noexcept = default;

Result<void> JsonLine::read(std::string_view json, FieldSet allowed, std::string_view what, LineFields& fields) {
  fields.clear();
  if (json.size() > kMaxLineBytes) {
    return refused(fmt::format("{} must be at most {} bytes long, got {}", what, kMaxLineBytes, json.size()));
  }
  dom::element root;
  if (const auto error = parser_->dom.parse(json.data(), json.size()).get(root)) {
    return refused(fmt::format("{} must be valid JSON: {}", what, simdjson::error_message(error)));
  }
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    const Scalar came = scalar_of(root);
    const std::string_view name = came.kind == Scalar::Kind::kOther     ? came.text
                                  : came.kind == Scalar::Kind::kText    ? "text"
                                  : came.kind == Scalar::Kind::kBoolean ? "a boolean"
                                                                        : "a number";
    return refused(fmt::format("{} must be a JSON object, got {}", what, name));
  }
  for (const auto& [name, value] : object) {
    const std::optional<Field> field = field_named(name, allowed);
    if (!field) return unknown_field(name, allowed, what);
    if (fields.has(*field)) return refused(fmt::format("{} must be given once, is given twice", name));
    dom::object parts;
    Result<void> set = LineFields::has_parts(*field) && value.get(parts) == simdjson::SUCCESS
                           ? set_parts(*field, parts, fields)
                           : fields.set(*field, {}, scalar_of(value));
    if (!set) return set;
  }
  fields.finish();
  return {};
}

}  // namespace headgate::engine

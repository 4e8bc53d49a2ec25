#include "service/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/suggest.h"
#include "base/utf8.h"

namespace headgate::service {
namespace {

constexpr std::size_t kDeepest = 32;
constexpr std::size_t kShown = 60;

std::string_view kind_of(const Json& json) noexcept {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  if (json.is_string()) return "text";
  if (json.is_boolean()) return "a boolean";
  return json.is_null() ? "null" : "a number";
}

// Looks at keys and depth while the text is read, and builds nothing: the library's own callback for a value that is
// built looks at all items of an array again after each of them.
class KeyWatch final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(std::int64_t /*value*/) override { return true; }
  bool number_unsigned(std::uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(Json::binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*items*/) override { return enter(); }
  bool key(std::string& name) override {
    if (twice.empty() && !seen_.back().insert(name).second) twice = name;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t /*items*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*last*/, const Json::exception& /*error*/) override {
    return false;
  }

  std::string twice;  // a key that is given twice; empty: none
  bool deep = false;

 private:
  bool enter() {
    deep = seen_.size() >= kDeepest;
    if (!deep) seen_.emplace_back();
    return !deep;
  }
  bool leave() {
    seen_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> seen_;
};

}  // namespace

Result<Json> json_of(std::string_view text) {
  KeyWatch watch;
  const bool valid = Json::sax_parse(text.begin(), text.end(), &watch);
  if (watch.deep) return Error{ErrorCode::kInvalidArgument, fmt::format("JSON must be at most {} deep", kDeepest)};
  if (!valid) {
    return Error{ErrorCode::kInvalidArgument,
                 text.empty() ? "the body must be JSON, is empty" : "the body must be valid JSON in UTF-8"};
  }
  if (!watch.twice.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} must be given once, is given twice", base::shortened(watch.twice, kShown))};
  }
  return Json::parse(text.begin(), text.end(), nullptr, false);
}

Result<Json> fields_of(std::string_view text, std::span<const std::string_view> fields) {
  Result<Json> body = json_of(text);
  if (!body) return body;
  if (!body->is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("the body must be a JSON object, got {}", kind_of(*body))};
  }
  for (const auto& [name, value] : body->items()) {
    if (std::find(fields.begin(), fields.end(), name) != fields.end()) continue;
    const std::vector<std::string> names(fields.begin(), fields.end());
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("there is no field \"{}\" here{}", base::shortened(name, kShown), base::did_you_mean(name, names))};
  }
  return body;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace headgate::service

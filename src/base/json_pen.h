// A JsonPen writes JSON: values, and objects a field at a time.
//
// Not for sharing between threads. Allocates nothing once the string has grown. Bytes that are not UTF-8 are written as
// they are; callers that may have such text repair it first (base/utf8.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/pen.h"

namespace headgate::base {

class JsonPen : public Pen {
 public:
  using Pen::Pen;

  // Values.
  void string(std::string_view text);  // with quotes and escapes
  void real(double number);            // 50, 0.5; null if it is not finite

  // An object: begin(), its fields, end(). Objects may be nested with key(). Fields without begin() continue an object
  // that was begun elsewhere, so that the first has a comma before it.
  void begin() {
    put('{');
    empty_ = true;
  }
  void end() {
    put('}');
    empty_ = false;
  }
  // The name of a field whose value is written next. REQUIRES: the name needs no escapes.
  void key(std::string_view name) {
    if (!empty_) put(',');
    empty_ = false;
    put('"');
    text(name);
    put("\":");
  }
  void text_field(std::string_view name, std::string_view value) {
    key(name);
    string(value);
  }
  void text_or_null_field(std::string_view name, std::string_view value) {
    return value.empty() ? null_field(name) : text_field(name, value);
  }
  void number_field(std::string_view name, std::int64_t value) {
    key(name);
    number(value);
  }
  void number_or_null_field(std::string_view name, std::optional<std::int64_t> value) {
    return value ? number_field(name, *value) : null_field(name);
  }
  void real_field(std::string_view name, double value) {
    key(name);
    real(value);
  }
  void bool_field(std::string_view name, bool value) {
    key(name);
    text(value ? "true" : "false");
  }
  void null_field(std::string_view name) {
    key(name);
    put("null");
  }

 private:
  bool empty_ = false;  // the object that was begun last has no field yet
};

// One value, for text that is put together without a pen.
inline void append_json_text(std::string_view text, std::string& out) { JsonPen(out).string(text); }
inline void append_json_number(double number, std::string& out) { JsonPen(out).real(number); }

}  // namespace headgate::base

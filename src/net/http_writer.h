// Writes HTTP/1.1 answers.
#pragma once

#include <string>

#include "net/http.h"

namespace headgate::net {

struct AnswerForm {
  bool head_only = false;   // the body is counted and left out
  bool close = false;       // the connection ends with it
  bool keep_alive = false;  // say that it does not, to somebody who would think so (HTTP/1.0)
};

// Appends the answer. Costs one look at the coarse clock, for Date.
void write_answer(const HttpAnswer& answer, const AnswerForm& form, std::string& out);

// {"error": code, "message": message}. REQUIRES: both are text that needs no escapes.
[[nodiscard]] std::string error_body(std::string_view code, std::string_view message);

}  // namespace headgate::net

// Writes HTTP/1.1 answers.
#pragma once

#include <string>

#include "net/http.h"

namespace headgate::net {

struct AnswerForm {
  bool head_only = false;   // the body is counted and left out
  bool close = false;       // the connection ends with it
  bool keep_alive = false;  // say that it does not, to an HTTP/1.0 client, which assumes that it does
};

// Appends the answer. Costs one look at the coarse clock, for Date.
void write_answer(const HttpAnswer& answer, const AnswerForm& form, std::string& out);

// "Bad Request"; "Error" for a status that has no name here.
[[nodiscard]] std::string_view reason_phrase(int status) noexcept;

}  // namespace headgate::net

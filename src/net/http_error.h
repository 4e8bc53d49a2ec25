// The one shape of an error over HTTP: {"error": code, "message": text}, or RFC 9457's application/problem+json where
// the request's Accept header names that.
//
// A problem document has the same two fields besides type, title, status and detail, so that clients find code and
// message in the same place in both.
#pragma once

#include <string>
#include <string_view>

#include "net/http.h"

namespace headgate::net {

enum class ErrorForm : std::uint8_t { kPlain, kProblem };

// Which of them the request asks for.
[[nodiscard]] ErrorForm error_form_of(const HttpRequest& request) noexcept;

struct HttpError {
  int status = 500;
  std::string_view code;                  // "invalid_request"
  std::string_view message;               // bytes that are not UTF-8 are replaced
  std::string_view type = "about:blank";  // of the problem document
};

// Appends the body and returns its content type. `members` are more fields of the object, as JSON that begins with a
// comma: `,"problems":[]`.
std::string_view append_error(const HttpError& error, ErrorForm form, std::string& body, std::string_view members = {});

}  // namespace headgate::net

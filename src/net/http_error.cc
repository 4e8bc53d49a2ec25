#include "net/http_error.h"

#include "base/json_pen.h"
#include "base/utf8.h"
#include "net/http_writer.h"

namespace headgate::net {
namespace {

constexpr std::string_view kProblemType = "application/problem+json";

}  // namespace

ErrorForm error_form_of(const HttpRequest& request) noexcept {
  const bool problem = request.header("accept").find(kProblemType) != std::string_view::npos;
  return problem ? ErrorForm::kProblem : ErrorForm::kPlain;
}

std::string_view append_error(const HttpError& error, ErrorForm form, std::string& body, std::string_view members) {
  std::string repaired;
  std::string_view message = error.message;
  if (!base::is_utf8(message)) {
    repaired = message;
    base::repair(repaired);
    message = repaired;
  }
  base::JsonPen pen(body);
  pen.begin();
  if (form == ErrorForm::kProblem) {
    pen.text_field("type", error.type);
    pen.text_field("title", reason_phrase(error.status));
    pen.number_field("status", error.status);
    pen.text_field("detail", message);
  }
  pen.text_field("error", error.code);
  pen.text_field("message", message);
  pen.text(members);
  pen.end();
  return form == ErrorForm::kProblem ? kProblemType : "application/json";
}

}  // namespace headgate::net

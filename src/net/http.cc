#include "net/http.h"

#include "base/ascii.h"

namespace headgate::net {
namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  c = base::to_lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string_view to_string(Method method) noexcept {
  switch (method) {
    case Method::kGet: return "GET";
    case Method::kHead: return "HEAD";
    case Method::kPost: return "POST";
    case Method::kPut: return "PUT";
    case Method::kDelete: return "DELETE";
    case Method::kPatch: return "PATCH";
    case Method::kOptions: return "OPTIONS";
    case Method::kOther: break;
  }
  return "other";
}

std::string_view HttpRequest::header(std::string_view lower_case_name) const noexcept {
  for (const Header& header : headers) {
    if (base::equals_ignoring_case(header.name, lower_case_name)) return header.value;
  }
  return {};
}

int HttpRequest::count(std::string_view lower_case_name) const noexcept {
  int count = 0;
  for (const Header& header : headers) count += base::equals_ignoring_case(header.name, lower_case_name) ? 1 : 0;
  return count;
}

bool percent_decoded(std::string_view text, bool plus_is_blank, std::string& out) {
  out.clear();
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3) return false;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_blank) {
      c = ' ';
    }
    if (c == '\0') return false;
    out += c;
  }
  return true;
}

std::string query_value(std::string_view query, std::string_view name, bool* found) {
  std::string key;
  std::string value;
  if (found != nullptr) *found = false;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const std::size_t equals = pair.find('=');
    if (!percent_decoded(pair.substr(0, equals), true, key) || key != name) continue;
    const std::string_view text = equals == std::string_view::npos ? std::string_view{} : pair.substr(equals + 1);
    if (!percent_decoded(text, true, value)) value.clear();
    if (found != nullptr) *found = true;
    return value;
  }
  return {};
}

}  // namespace headgate::net

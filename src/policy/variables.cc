#include "policy/variables.h"

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"

namespace headgate::policy {
namespace {

bool is_name(std::string_view text) noexcept {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

std::optional<std::string> expand(Expand how, std::string& text) {
  if (how == Expand::kNo || !has_variables(text)) return std::nullopt;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", begin)) {
    out.append(text, begin, at - begin);
    if (at > begin && text[at - 1] == '$') {
      out.back() = '$';
      out += '{';
      begin = at + 2;
      continue;
    }
    const std::size_t end = text.find('}', at);
    const std::string name = end == std::string::npos ? std::string() : text.substr(at + 2, end - at - 2);
    if (!is_name(name)) {
      return "${ must be followed by the name of an environment variable and }, as in ${REDIS_URL}; for the text "
             "itself "
             "write $${";
    }
    if (how == Expand::kRefuse) {
      return "${" + base::shortened(name, 64) +
             "}: environment variables are read in files only, not in documents that are sent; for the text itself "
             "write $${";
    }
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): no thread sets any
    if (value == nullptr) return "environment variable " + base::shortened(name, 64) + " is not set";
    if (base::find_not_text(value) != std::string_view::npos) {
      return "environment variable " + base::shortened(name, 64) + " must be UTF-8 text";
    }
    out += value;
    begin = end + 1;
  }
  out.append(text, begin);
  text = std::move(out);
  return std::nullopt;
}

}  // namespace headgate::policy

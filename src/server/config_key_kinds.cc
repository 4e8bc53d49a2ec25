#include "server/config_key_kinds.h"

#include "base/json_pen.h"
#include "base/utf8.h"

namespace headgate::server {

std::string quoted(const std::string& text) {
  std::string out;
  base::append_json_text(text, out);
  return out;
}

std::string must_be(std::string_view what, const Value& value) {
  return fmt::format("must be {}, got {}", what, value.shown);
}

const std::string* text_of(const Value& value) {
  return !value.list && value.items.size() == 1 ? value.items.data() : nullptr;
}

bool is_fine(const std::string& text) {
  constexpr std::size_t kMaxTextBytes = 4'096;
  return text.size() <= kMaxTextBytes && base::is_plain_text(text);
}

}  // namespace headgate::server

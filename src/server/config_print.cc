#include <fmt/format.h>

#include <iterator>

#include "server/config.h"
#include "server/config_keys.h"

namespace headgate::server {
namespace {

void append_comment(std::string_view text, std::string_view indent, std::string& out) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    fmt::format_to(std::back_inserter(out), "{}# {}\n", indent, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void append_key(const ConfigKey& key, const Config& config, std::string& out) {
  const std::string_view indent = key.section().empty() ? "" : "  ";
  append_comment(key.doc, indent, out);
  const std::string value = key.get(config);
  if (key.is_secret && key.is_secret(config) && value != key.get(Config{})) {
    fmt::format_to(std::back_inserter(out), "{}# {} is set, and not shown  # {}\n", indent, key.name(), key.variable());
  } else {
    fmt::format_to(std::back_inserter(out), "{}{}: {}  # {}\n", indent, key.name(), value, key.variable());
  }
}

}  // namespace

std::string print_config(const Config& config) {
  std::string out =
      "# Headgate's configuration: headgate serve --config headgate.yaml\n"
      "#\n"
      "# Every key has a default, and stands here with it unless it was set. The variable named beside a key wins "
      "over\n"
      "# the file, a flag wins over both. Durations read 500ms, 60s, 5m, 1h or 7d; in variables, items of a list are\n"
      "# separated by commas. A key that is not known is refused. Relative paths start where the server does.\n";
  std::string section;
  for (const ConfigKey& key : config_keys()) {
    const bool enters = !key.section().empty() && key.section() != section;
    if (key.section().empty() || enters) out += '\n';
    section = key.section();
    if (enters) {
      append_comment(section_doc(section), "", out);
      out += section + ":\n";
    }
    append_key(key, config, out);
  }
  return out;
}

}  // namespace headgate::server

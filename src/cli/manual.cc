// The manual page, out of the same texts that --help prints.
#include <fmt/format.h>

#include <sstream>

#include "cli/catalogue.h"
#include "headgate/version.h"

namespace headgate::cli {
namespace {

// What roff would take for itself.
std::string plain(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

// One help text: paragraphs, usage, sections of entries.
std::string body(std::string_view help, bool with_usage) {
  std::istringstream in{std::string(help)};
  std::string out;
  std::string line;
  std::getline(in, line);  // the title
  bool paragraph = false;
  bool entry = false;
  while (std::getline(in, line)) {
    const std::size_t indent = indent_of(line);
    if (line.empty()) {
      paragraph = false;
      entry = false;
    } else if (line.starts_with("Usage: ")) {
      if (with_usage) out += ".PP\n.B " + plain(line.substr(7)) + "\n";
    } else if (indent == 0 && line.ends_with(':')) {
      out += ".PP\n" + plain(line) + "\n";
      paragraph = true;
    } else if (indent == 0) {
      if (!paragraph) out += ".PP\n";
      paragraph = true;
      out += plain(line) + "\n";
    } else if (indent == 2) {
      const std::size_t gap = line.find("  ", indent);
      out += ".TP\n.B " + plain(line.substr(indent, gap - indent)) + "\n";
      if (gap != std::string::npos) out += plain(line.substr(line.find_first_not_of(' ', gap))) + "\n";
      entry = true;
    } else if (entry) {
      out += plain(line.substr(indent)) + "\n";
    } else {
      out += ".br\n" + plain(line) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string manual(const std::vector<CommandInfo>& commands, std::string_view introduction) {
  std::string out = fmt::format(
      ".\\\" Made by \"headgate help --man\".\n"
      ".TH HEADGATE 1 \"\" \"headgate {}\" \"User Commands\"\n"
      ".SH NAME\nheadgate \\- {}\n"
      ".SH SYNOPSIS\n.B headgate\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n",
      HEADGATE_VERSION, plain(summary_of(introduction)));
  out += body(introduction, false);
  out += ".SH COMMANDS\n";
  for (const CommandInfo& command : commands) {
    if (command.path.empty() || !command.children.empty()) continue;
    out += ".SS headgate " + plain(command.path) + "\n" + plain(command.summary) + ".\n" + body(command.help, true);
  }
  return out;
}

}  // namespace headgate::cli

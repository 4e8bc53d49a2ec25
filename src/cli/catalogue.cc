#include "cli/catalogue.h"

#include <algorithm>
#include <sstream>

namespace headgate::cli {
namespace {

bool is_value(std::string_view word) {
  const auto choice = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '|' || c == '_' || c == '-';
  };
  const auto capital = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("=_,:/.").find(c) != std::string_view::npos;
  };
  if (word.empty() || word.front() == '-') return false;
  if (word.find('|') != std::string_view::npos) return std::all_of(word.begin(), word.end(), choice);
  return word.front() >= 'A' && word.front() <= 'Z' && std::all_of(word.begin(), word.end(), capital);
}

std::string_view word_at(std::string_view text, std::size_t at) {
  return text.substr(at, std::min(text.find_first_of(" ],\n", at), text.size()) - at);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What an entry of the help says about it: on its line after two blanks, and on those below that are indented further.
std::string about(const std::vector<std::string>& lines, const std::string& name) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const std::size_t indent = indent_of(line);
    if (indent != 2) continue;
    const std::size_t at = line.find(name, indent);
    const std::size_t gap = line.find("  ", indent);
    if (at == std::string::npos || at > gap || (at > indent && line[indent + 1] == '-')) continue;
    const std::size_t after = at + name.size();
    if (after < line.size() && line[after] != ' ' && line[after] != ',') continue;
    std::string text = gap == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', gap));
    for (std::size_t next = i + 1; next < lines.size() && indent_of(lines[next]) > 4; ++next) {
      text += (text.empty() ? "" : " ") + lines[next].substr(indent_of(lines[next]));
    }
    return text;
  }
  return {};
}

// The word after it, if that is a value's: the choices, wherever it is written with them.
std::string value(std::string_view help, const std::string& name) {
  std::string found;
  for (std::size_t at = help.find(name); at != std::string_view::npos; at = help.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (end >= help.size() || help[end] != ' ') continue;
    std::string_view word = word_at(help, end + 1);
    while (word.ends_with('.')) word.remove_suffix(1);
    if (!is_value(word)) continue;
    if (found.empty() || word.find('|') != std::string_view::npos) found = word;
  }
  return found;
}

// What stands without a name at the end of the usage: "[PATH...]", "bash|zsh|fish".
std::string argument(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (!line.starts_with("Usage: ")) continue;
    std::string last = line.substr(line.rfind(' ') + 1);
    std::erase_if(last, [](char c) { return c == '[' || c == ']' || c == '.'; });
    const std::string before = line.substr(0, line.rfind(' '));
    const std::string previous = before.substr(before.rfind(' ') + 1);
    if (last == "OPTIONS" || previous.find("--") != std::string::npos) return {};
    return is_value(last) ? last : std::string();
  }
  return {};
}

}  // namespace

bool OptionInfo::takes_file() const { return value == "FILE" || value == "PATH" || value == "DIR"; }

std::vector<std::string> OptionInfo::choices() const {
  std::vector<std::string> all;
  if (value.find('|') == std::string::npos) return all;
  std::istringstream in(value);
  for (std::string one; std::getline(in, one, '|');) all.push_back(one);
  return all;
}

std::size_t indent_of(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

std::string summary_of(std::string_view help) {
  const std::string_view line = help.substr(0, help.find('\n'));
  const std::size_t colon = line.find(": ");
  return std::string(colon == std::string_view::npos ? line : line.substr(colon + 2));
}

CommandInfo describe(const std::string& path, const char* help, const Arguments& arguments) {
  CommandInfo info;
  info.path = path;
  info.summary = summary_of(help);
  info.help = help;
  const std::vector<std::string> lines = lines_of(help);
  for (const Arguments::Declared& option : arguments.declared()) {
    OptionInfo about_it;
    about_it.name = option.name;
    about_it.about = about(lines, about_it.name);
    if (option.takes_value) {
      about_it.value = value(help, about_it.name);
      if (about_it.value.empty()) about_it.value = "VALUE";
    }
    info.options.push_back(std::move(about_it));
  }
  info.argument.value = argument(lines);
  return info;
}

}  // namespace headgate::cli

// What commands there are, and what each takes: read out of the commands themselves and their help, so that the list of
// commands, the completions and the manual cannot say anything else.
//
// The form of a help text: its first line is "headgate PATH: summary", paragraphs follow, then "Usage: ...", then
// sections, each a line that ends with a colon and entries indented by two: what it is, two blanks or more, what it
// does, continued on lines indented further. Values are named in capitals: FILE, PATH and DIR are completed as files; a
// value written one|two|three is one of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace headgate::cli {

struct OptionInfo {
  std::string name;   // "--agent"; of an argument without a name, empty
  std::string value;  // "FILE", "admin|viewer|agent"; empty: takes none
  std::string about;  // may be empty
  [[nodiscard]] bool takes_file() const;
  [[nodiscard]] std::vector<std::string> choices() const;
};

struct CommandInfo {
  std::string path;
  std::string summary;
  const char* help = "";
  std::vector<OptionInfo> options;
  OptionInfo argument;                // what may stand without a name; no value: nothing may
  std::vector<std::string> children;  // of "policy": validate, list, ...
};

// "report every problem in policy files".
[[nodiscard]] std::string summary_of(std::string_view help);

// By how many blanks.
[[nodiscard]] std::size_t indent_of(std::string_view line);

[[nodiscard]] CommandInfo describe(const std::string& path, const char* help, const Arguments& arguments);

[[nodiscard]] std::string bash_completions(const std::vector<CommandInfo>& commands);
[[nodiscard]] std::string zsh_completions(const std::vector<CommandInfo>& commands);
[[nodiscard]] std::string fish_completions(const std::vector<CommandInfo>& commands);
// headgate.1, for man.
[[nodiscard]] std::string manual(const std::vector<CommandInfo>& commands, std::string_view introduction);

}  // namespace headgate::cli

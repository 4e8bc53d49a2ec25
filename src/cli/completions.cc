// Completions for bash, zsh and fish, out of the catalogue of commands.
#include <fmt/format.h>

#include "cli/catalogue.h"
#include "cli/view/terminal.h"

namespace headgate::cli {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// As far as it fits a menu: its first clause.
std::string brief(std::string_view about) {
  constexpr std::size_t kMost = 60;
  std::string text(about.substr(0, about.find_first_of(";(")));
  while (text.ends_with(' ')) text.pop_back();
  if (text.size() <= kMost) return text;
  return text.substr(0, text.rfind(' ', kMost));
}

// Those that stand at the top: "policy" for "policy list" too.
std::vector<const CommandInfo*> top_level(const std::vector<CommandInfo>& commands) {
  std::vector<const CommandInfo*> found;
  for (const CommandInfo& command : commands) {
    if (!command.path.empty() && command.path.find(' ') == std::string::npos) found.push_back(&command);
  }
  return found;
}

std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionInfo& option) {
  if (option.takes_file()) return "_files";
  const std::vector<std::string> choices = option.choices();
  return choices.empty() ? " " : "(" + joined(choices, " ") + ")";
}

}  // namespace

std::string bash_completions(const std::vector<CommandInfo>& commands) {
  std::string names;
  std::string options;
  std::string values;
  for (const CommandInfo& command : commands) {
    std::vector<std::string> words = command.children;
    for (const CommandInfo* top : top_level(commands)) {
      if (command.path.empty()) words.push_back(top->path);
    }
    for (const std::string& choice : command.argument.choices()) words.push_back(choice);
    if (!words.empty()) names += fmt::format("    {}) words='{}' ;;\n", in_quotes(command.path), joined(words, " "));
    if (command.argument.takes_file()) names += fmt::format("    {}) files=1 ;;\n", in_quotes(command.path));
    std::vector<std::string> flags;
    for (const OptionInfo& option : command.options) {
      flags.push_back(option.name);
      const std::string at = in_quotes(command.path + " " + option.name);
      if (option.takes_file()) {
        values += fmt::format("    {}) files=1 ;;\n", at);
      } else if (const auto choices = option.choices(); !choices.empty()) {
        values += fmt::format("    {}) words='{}' ;;\n", at, joined(choices, " "));
      } else if (!option.value.empty()) {
        values += fmt::format("    {}) ;;\n", at);
      }
    }
    options += fmt::format("    {}) words='{}' ;;\n", in_quotes(command.path), joined(flags, " "));
  }
  std::string parents;
  for (const CommandInfo& command : commands) {
    if (!command.children.empty()) parents += (parents.empty() ? "" : "|") + command.path;
  }
  return fmt::format(R"(# bash completion for headgate
_headgate() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path='' words='' files='' i
  # An option's value may be a word of its own, after "=".
  [[ $current == '=' ]] && current=''
  [[ $previous == '=' ]] && previous=${{COMP_WORDS[COMP_CWORD-2]}}
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      -*) break ;;
    esac
    case $path in
      '') path=${{COMP_WORDS[i]}} ;;
      {}) path="$path ${{COMP_WORDS[i]}}" ;;
      *) break ;;
    esac
  done
  case "$path $previous" in
{}    *)
      if [[ $current == -* ]]; then
        case $path in
{}        esac
      else
        case $path in
{}        esac
      fi
      ;;
  esac
  COMPREPLY=()
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}}
complete -F _headgate headgate
)",
                     parents, values, options, names);
}

std::string zsh_completions(const std::vector<CommandInfo>& commands) {
  std::string cases;
  for (const CommandInfo& command : commands) {
    cases += fmt::format("    {})\n", in_quotes(command.path));
    std::vector<std::pair<std::string, std::string>> names;
    for (const CommandInfo& other : commands) {
      const std::size_t blank = other.path.rfind(' ');
      const std::string parent = blank == std::string::npos ? "" : other.path.substr(0, blank);
      if (!other.path.empty() && parent == command.path) {
        names.emplace_back(blank == std::string::npos ? other.path : other.path.substr(blank + 1), other.summary);
      }
    }
    if (!names.empty()) {
      cases += "      names=(";
      for (const auto& [name, about] : names) cases += "\n        " + in_quotes(name + ":" + brief(about));
      cases += "\n      )\n";
    }
    cases += "      options=(";
    for (const OptionInfo& option : command.options) {
      std::string spec = "*" + option.name + "[" + zsh_text(brief(option.about)) + "]";
      if (!option.value.empty()) spec += ":" + zsh_text(option.value) + ":" + zsh_action(option);
      cases += "\n        " + in_quotes(spec);
    }
    if (!command.argument.value.empty() && names.empty()) {
      cases += "\n        " + in_quotes("*:" + zsh_text(command.argument.value) + ":" + zsh_action(command.argument));
    }
    cases += "\n      )\n      ;;\n";
  }
  std::string parents;
  for (const CommandInfo& command : commands) {
    if (!command.children.empty()) parents += (parents.empty() ? "" : "|") + command.path;
  }
  return fmt::format(R"(#compdef headgate
# zsh completion for headgate
_headgate() {{
  local path_ word
  local -a names options
  integer taken=0
  for word in ${{words[2,CURRENT-1]}}; do
    [[ $word == -* ]] && break
    case $path_ in
      '') path_=$word ;;
      {}) path_="$path_ $word" ;;
      *) break ;;
    esac
    (( taken++ ))
  done
  case $path_ in
{}  esac
  if (( $#names )) && [[ $PREFIX != -* ]]; then
    _describe -t commands 'headgate command' names
    return
  fi
  # What has been taken as the command is no argument of it.
  words=(headgate ${{words[taken+2,-1]}})
  (( CURRENT -= taken ))
  _arguments -s $options
}}
if [[ $funcstack[1] == _headgate ]]; then
  _headgate "$@"
else
  compdef _headgate headgate
fi
)",
                     parents, cases);
}

std::string fish_completions(const std::vector<CommandInfo>& commands) {
  std::string parents;
  for (const CommandInfo& command : commands) {
    if (!command.children.empty()) parents += " " + command.path;
  }
  std::string out = fmt::format(R"(# fish completion for headgate
function __headgate_path
    set -l path
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; and break
        if test (count $path) -eq 0
            set path $word
        else if contains -- "$path" {}
            set path "$path $word"
        else
            break
        end
    end
    echo "$path"
end
function __headgate_at
    test (__headgate_path) = "$argv[1]"
end
complete -c headgate -f
)",
                                parents.empty() ? parents : parents.substr(1));
  for (const CommandInfo& command : commands) {
    const std::size_t blank = command.path.rfind(' ');
    if (!command.path.empty()) {
      const std::string parent = blank == std::string::npos ? "" : command.path.substr(0, blank);
      const std::string name = blank == std::string::npos ? command.path : command.path.substr(blank + 1);
      out += fmt::format("complete -c headgate -n \"__headgate_at '{}'\" -a {} -d {}\n", parent, in_quotes(name),
                         in_quotes(brief(command.summary)));
    }
    const std::string at = fmt::format("complete -c headgate -n \"__headgate_at '{}'\"", command.path);
    for (const OptionInfo& option : command.options) {
      out += fmt::format("{} -l {}", at, option.name.substr(2));
      if (!option.value.empty()) out += option.takes_file() ? " -r -F" : " -x";
      if (const auto choices = option.choices(); !choices.empty()) out += " -a " + in_quotes(joined(choices, " "));
      if (!option.about.empty()) out += " -d " + in_quotes(brief(option.about));
      out += "\n";
    }
    if (command.argument.takes_file()) out += at + " -F\n";
    if (const auto choices = command.argument.choices(); !choices.empty()) {
      out += fmt::format("{} -a {}\n", at, in_quotes(joined(choices, " ")));
    }
  }
  return out;
}

}  // namespace headgate::cli

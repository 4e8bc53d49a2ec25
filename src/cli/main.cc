// The command line: finds the command and runs it. Each command has a file of its own.
#include <fmt/format.h>

#include <cstdio>

#include "base/suggest.h"
#include "cli/catalogue.h"
#include "cli/command.h"
#include "headgate/version.h"

namespace headgate::cli {
namespace {

constexpr const char* kTitle = R"(headgate: rate limits for AI agents

Usage: headgate COMMAND [OPTIONS]
)";

constexpr const char* kAfterCommands = R"(
Options:
  -h, --help        print this; after a command, its own help
  --version         print the version

Environment:
  HEADGATE_URL      the server to connect to (http://127.0.0.1:7070)
  HEADGATE_TOKEN    the token to authenticate with
  HEADGATE_DATA     where a server on this machine keeps its admin token
                    (./headgate-data), used if no other token is given
  NO_COLOR          disables colours if it is set

Exit code: 0 done, 1 failed, 2 usage error (1 for "check"), 3 denied.
"run" has the exit code of its command, or 75 if it was denied.
)";

constexpr const char* kCompletionsHelp = R"(headgate completions: print completions for bash, zsh or fish

Prints a script that lets the shell complete commands and options:

  source <(headgate completions bash)
                      in ~/.bashrc, or into the directory
                      ~/.local/share/bash-completion/completions/ as headgate
  source <(headgate completions zsh)
                      in ~/.zshrc after compinit, or as _headgate in a
                      directory of $fpath
  headgate completions fish | source
                      in config.fish, or as headgate.fish in
                      ~/.config/fish/completions/

Usage: headgate completions bash|zsh|fish

Options:
  -h, --help          print this
)";

std::vector<std::string> option_names(const Arguments& arguments) {
  std::vector<std::string> names{"--help"};
  for (Arguments::Declared& option : arguments.declared()) names.push_back(std::move(option.name));
  return names;
}

int unexpected(const Arguments& arguments, const std::string& argument, std::string_view command) {
  if (!argument.starts_with('-')) return not_understood(fmt::format("unexpected argument \"{}\"", argument), command);
  const std::string name = argument.substr(0, argument.find('='));
  return not_understood(
      fmt::format("there is no option \"{}\"{}", name, base::did_you_mean(name, option_names(arguments))), command);
}

std::string entry(std::string_view name, std::string_view about) { return fmt::format("  {:<16}  {}\n", name, about); }

class Program {
 public:
  Program() {
    program_.flag("--version", wants_version_);

    section("Server");
    add(serve_command(program_));
    add(status_command(program_));
    add(top_command(program_));
    section("Checks");
    add(check_command(program_));
    add(run_command(program_, foreign_));
    add(bench_command(program_));
    section("Administration");
    const Arguments emergency = parent("emergency", "turn the emergency throttle on or off");
    add(emergency_on_command(emergency));
    add(emergency_off_command(emergency));
    add(emergency_status_command(emergency));
    const Arguments token = parent("token", "manage tokens");
    add(token_create_command(token));
    add(token_list_command(token));
    add(token_revoke_command(token));
    section("Quotas");
    const Arguments quota = parent("quota", "quotas of commands by day, week and month");
    add(quota_status_command(quota));
    add(quota_set_command(quota));
    add(quota_plans_command(quota));
    add(quota_set_plan_command(quota));
    add(quota_history_command(quota));
    add(quota_report_command(quota));
    add(quota_queue_command(quota));
    section("Policies");
    const Arguments policy = parent("policy", "check, show and restore policies");
    add(policy_validate_command(policy));
    add(policy_list_command(policy));
    add(policy_explain_command(policy));
    add(policy_versions_command(policy));
    add(policy_rollback_command(policy));
    add(simulate_command(program_));
    add(tune_command(program_));
    section("Other");
    add(demo_command(program_));
    add(completions_command());
    help_.option("topic", topic_).at_most(2);
    help_.flag("--man", wants_manual_).hidden();
    listing_ += entry("version", "print the version") + entry("help [COMMAND]", "print this, or a command's own help");
    help_text_ = kTitle + listing_ + kAfterCommands;
  }

  int run(int argc, char** argv) {
    std::string message;
    const ArgumentParser::Parsed parsed = parser_.parse(own_arguments(argc, argv), argv, message);
    if (parsed == ArgumentParser::Parsed::kHelpWanted) {
      if (const Command* command = chosen()) return write(command->help);
      const Parent* above = chosen_parent();
      return write(above != nullptr ? parent_help(*above) : help_text_);
    }
    if (parsed == ArgumentParser::Parsed::kFailed) {
      const Command* command = chosen();
      return not_understood(message, command == nullptr ? "" : command->path);
    }
    if (const auto extras = program_.unexpected(); !extras.empty()) {
      return extras[0].starts_with('-') ? unexpected(program_, extras[0], "") : unknown_command(extras[0]);
    }
    for (const Arguments& plain : {version_, help_}) {
      if (const auto extras = plain.unexpected(); !extras.empty()) return unexpected(plain, extras[0], "");
    }
    if (wants_version_ || version_.given()) return write("headgate " HEADGATE_VERSION "\n");
    if (help_.given()) return help();
    if (const Command* command = chosen()) {
      const auto extras = command->arguments.unexpected();
      return extras.empty() ? command->run() : unexpected(command->arguments, extras[0], command->path);
    }
    if (const Parent* above = chosen_parent()) {
      const auto extras = above->arguments.unexpected();
      if (extras.empty()) return usage(parent_help(*above));
      return extras[0].starts_with('-') ? unexpected(above->arguments, extras[0], above->name)
                                        : unknown_command(above->name + " " + extras[0]);
    }
    return usage(help_text_);
  }

 private:
  // A word that only leads to commands: "policy".
  struct Parent {
    std::string name;
    std::string summary;
    Arguments arguments;
  };

  // How many arguments are ours: what stands after "headgate run ... --" is another program's command line, in which
  // the parser would find options, lists and commands of ours.
  int own_arguments(int argc, char** argv) {
    if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
    for (int i = 2; i < argc; ++i) {
      if (std::string_view(argv[i]) != "--") continue;
      foreign_ = argv + i + 1;
      return i;
    }
    return argc;
  }

  void section(const char* title) { listing_ += fmt::format("\n{}:\n", title); }
  Arguments parent(const char* name, const char* summary) {
    parents_.push_back({name, summary, program_.command(name)});
    return parents_.back().arguments;
  }
  void add(Command command) {
    listing_ += entry(command.path, summary_of(command.help));
    commands_.push_back(std::move(command));
  }
  Command completions_command() {
    Arguments arguments = program_.command("completions");
    arguments.option("shell", shell_);
    return {"completions", kCompletionsHelp, arguments, [this] {
              if (shell_ == "bash") return write(bash_completions(catalogue()));
              if (shell_ == "zsh") return write(zsh_completions(catalogue()));
              if (shell_ == "fish") return write(fish_completions(catalogue()));
              return not_understood(fmt::format("the shell must be bash, zsh or fish, got \"{}\"", shell_),
                                    "completions");
            }};
  }

  [[nodiscard]] const Command* chosen() const {
    for (const Command& command : commands_) {
      if (command.arguments.given()) return &command;
    }
    return nullptr;
  }
  [[nodiscard]] const Parent* chosen_parent() const {
    for (const Parent& above : parents_) {
      if (above.arguments.given()) return &above;
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<const Command*> children(const Parent& above) const {
    std::vector<const Command*> found;
    for (const Command& command : commands_) {
      if (command.path.starts_with(above.name + " ")) found.push_back(&command);
    }
    return found;
  }
  [[nodiscard]] std::string parent_help(const Parent& above) const {
    std::string text = fmt::format("headgate {0}: {1}\n\nUsage: headgate {0} COMMAND [OPTIONS]\n\nCommands:\n",
                                   above.name, above.summary);
    for (const Command* command : children(above)) {
      text += fmt::format("  {:<8}  {}\n", command->path.substr(above.name.size() + 1), summary_of(command->help));
    }
    return text + fmt::format("\n\"headgate {} COMMAND --help\" shows its options.\n", above.name);
  }
  [[nodiscard]] std::vector<CommandInfo> catalogue() const {
    std::vector<CommandInfo> all;
    std::string topics = "version";
    for (const Command& command : commands_) {
      if (command.path.find(' ') == std::string::npos) topics += "|" + command.path;
    }
    for (const Parent& above : parents_) topics += "|" + above.name;
    all.push_back(describe("", help_text_.c_str(), program_));
    for (const Parent& above : parents_) {
      CommandInfo info;
      info.path = above.name;
      info.summary = above.summary;
      info.options.push_back({"--help", "", "print help"});
      for (const Command* child : children(above)) info.children.push_back(child->path.substr(above.name.size() + 1));
      all.push_back(std::move(info));
    }
    for (const Command& command : commands_) all.push_back(describe(command.path, command.help, command.arguments));
    CommandInfo version;
    version.path = "version";
    version.summary = "print the version";
    all.push_back(version);
    CommandInfo help;
    help.path = "help";
    help.summary = "print help, all of it or that of a command";
    help.argument.value = topics;
    all.push_back(help);
    return all;
  }

  static int usage(const std::string& help) {
    fmt::print(stderr, "{}", help);
    return kUsage;
  }
  int unknown_command(const std::string& name) const {
    std::vector<std::string> names{"version", "help"};
    for (const Parent& above : parents_) names.push_back(above.name);
    for (const Command& command : commands_) names.push_back(command.path);
    return not_understood(fmt::format("there is no command \"{}\"{}", name, base::did_you_mean(name, names)), "");
  }
  int help() const {
    if (wants_manual_) return write(manual(catalogue(), help_text_));
    const std::string topic = fmt::format("{}", fmt::join(topic_, " "));
    for (const Command& command : commands_) {
      if (command.path == topic) return write(command.help);
    }
    for (const Parent& above : parents_) {
      if (above.name == topic) return write(parent_help(above));
    }
    if (topic.empty() || topic == "help" || topic == "version") return write(help_text_);
    return unknown_command(topic);
  }

  ArgumentParser parser_;
  Arguments program_ = parser_.program();
  char** foreign_ = nullptr;
  bool wants_version_ = false;
  bool wants_manual_ = false;
  Arguments version_ = program_.command("version");
  Arguments help_ = program_.command("help");
  std::string shell_;
  std::vector<std::string> topic_;
  std::vector<Parent> parents_;
  std::vector<Command> commands_;
  std::string listing_;    // of the commands, in sections
  std::string help_text_;  // of the program itself
};

}  // namespace
}  // namespace headgate::cli

int main(int argc, char** argv) {
  try {
    return headgate::cli::Program().run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headgate: %s\n", error.what());
    return 1;
  }
}

// The command line: finds the command and runs it. Each command has a file of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/suggest.h"
#include "cli/command.h"
#include "headgate/version.h"

namespace headgate::cli {
namespace {

constexpr const char* kHelp = R"(headgate: rate limits for AI agents

Usage: headgate COMMAND [OPTIONS]

Commands:
  serve            answer checks over HTTP, WebSocket, Redis and gRPC
  policy validate  what is wrong with policies, and where
  policy list      policies as a table
  policy explain   what each policy makes of one check
  simulate         replay a trace against policies, in virtual time
  tune             limits proposed from observed use
  demo             show how each strategy treats a burst, as a timeline
  version          print the version
  help [COMMAND]   print this, or a command's own help

Options:
  -h, --help       print this
  --version        print the version

"headgate help simulate" says more about simulating.
)";

constexpr const char* kPolicyHelp = R"(headgate policy: look at policies before they are in force

Usage: headgate policy COMMAND [OPTIONS]

Commands:
  validate  what is wrong with policies, and where
  list      policies as a table
  explain   what each policy makes of one check

"headgate policy explain --help" says more about explaining.
)";

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names{"--help"};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

int unexpected(const CLI::App& app, const std::string& argument, std::string_view command) {
  if (!argument.starts_with('-')) return not_understood(fmt::format("unexpected argument \"{}\"", argument), command);
  const std::string name = argument.substr(0, argument.find('='));
  return not_understood(fmt::format("there is no option \"{}\"{}", name, base::did_you_mean(name, option_names(app))),
                        command);
}

class Program {
 public:
  Program() {
    app_.allow_extras();
    app_.require_subcommand(0, 1);
    app_.add_flag("--version", wants_version_);
    add(serve_command(app_));
    policy_ = app_.add_subcommand("policy");
    policy_->allow_extras();
    policy_->require_subcommand(0, 1);
    add(policy_validate_command(*policy_));
    add(policy_list_command(*policy_));
    add(policy_explain_command(*policy_));
    add(simulate_command(app_));
    add(tune_command(app_));
    add(demo_command(app_));
    version_ = app_.add_subcommand("version");
    version_->allow_extras();
    help_ = app_.add_subcommand("help");
    help_->allow_extras();
    help_->add_option("topic", topic_)->expected(0, 2);
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      const Command* command = chosen();
      return write(command != nullptr ? command->help : policy_->parsed() ? kPolicyHelp : kHelp);
    } catch (const CLI::ParseError& error) {
      const Command* command = chosen();
      return not_understood(error.what(), command == nullptr ? "" : command->path);
    }
    if (const auto extras = app_.remaining(); !extras.empty()) {
      return extras[0].starts_with('-') ? unexpected(app_, extras[0], "") : unknown_command(extras[0]);
    }
    for (const CLI::App* plain : {version_, help_}) {
      if (const auto extras = plain->remaining(); !extras.empty()) return unexpected(*plain, extras[0], "");
    }
    if (wants_version_ || version_->parsed()) return write("headgate " HEADGATE_VERSION "\n");
    if (help_->parsed()) return help();
    if (const Command* command = chosen()) {
      const auto extras = command->app->remaining();
      return extras.empty() ? command->run() : unexpected(*command->app, extras[0], command->path);
    }
    if (policy_->parsed()) {
      const auto extras = policy_->remaining();
      if (extras.empty()) return usage(kPolicyHelp);
      return extras[0].starts_with('-') ? unexpected(*policy_, extras[0], "policy")
                                        : unknown_command("policy " + extras[0]);
    }
    return usage(kHelp);
  }

 private:
  void add(Command command) {
    command.app->allow_extras();
    commands_.push_back(std::move(command));
  }
  [[nodiscard]] const Command* chosen() const {
    for (const Command& command : commands_) {
      if (command.app->parsed()) return &command;
    }
    return nullptr;
  }
  static int usage(const char* help) {
    fmt::print(stderr, "{}", help);
    return kUsage;
  }
  int unknown_command(const std::string& name) const {
    std::vector<std::string> names{"version", "help", "policy"};
    for (const Command& command : commands_) names.push_back(command.path);
    return not_understood(fmt::format("there is no command \"{}\"{}", name, base::did_you_mean(name, names)), "");
  }
  int help() const {
    const std::string topic = fmt::format("{}", fmt::join(topic_, " "));
    for (const Command& command : commands_) {
      if (command.path == topic) return write(command.help);
    }
    if (topic == "policy") return write(kPolicyHelp);
    if (topic.empty() || topic == "help" || topic == "version") return write(kHelp);
    return unknown_command(topic);
  }

  CLI::App app_;
  bool wants_version_ = false;
  CLI::App* policy_ = nullptr;
  CLI::App* version_ = nullptr;
  CLI::App* help_ = nullptr;
  std::vector<std::string> topic_;
  std::vector<Command> commands_;
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

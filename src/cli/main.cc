// The command line. Exit codes: 0 done, 1 could not, 2 was not understood.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>

#include "base/suggest.h"
#include "cli/demo.h"
#include "cli/terminal.h"
#include "headgate/version.h"

namespace headgate::cli {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kHelp = R"(headgate: rate limits for AI agents

Usage: headgate COMMAND [OPTIONS]

Commands:
  demo           show how each strategy treats a burst, as a timeline
  version        print the version
  help [COMMAND] print this, or a command's own help

Options:
  -h, --help     print this
  --version      print the version

"headgate help demo" says more about the demo.
)";

constexpr const char* kDemoHelp = R"(headgate demo: the eight strategies, side by side

Plays one pattern of calls, two bursts and a steady trickle, against each
strategy in virtual time and draws what was admitted and what was refused.

Usage: headgate demo [OPTIONS]

Options:
  --strategy NAME  only this one: token_bucket, gcra, sliding_window,
                   sliding_window_counter, fixed_window, leaky_bucket,
                   concurrency or quota
  --json           one JSON object per call, instead of pictures
  --width N        fit N columns, 40 to 400 (default: the terminal's, else 80)
  --no-color       no colours; the environment variable NO_COLOR does the same
  -h, --help       print this

Times in JSON are milliseconds; at_ms counts from the left edge of the picture.
)";

int write(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return kDone;
  fmt::print(stderr, "headgate: standard output cannot be written: {}\n", std::generic_category().message(errno));
  return kFailed;
}

int not_understood(std::string_view message, std::string_view help = "headgate --help") {
  fmt::print(stderr, "headgate: {}\nSee \"{}\".\n", message, help);
  return kUsage;
}

int unknown_command(const std::string& name, const std::vector<std::string>& commands) {
  return not_understood(fmt::format("there is no command \"{}\"{}", name, base::did_you_mean(name, commands)));
}

int unexpected(const std::string& argument, const char* command, const std::vector<std::string>& options) {
  const std::string name = argument.substr(0, argument.find('='));
  const std::string help = std::string("headgate") + command + " --help";
  if (!argument.starts_with('-')) return not_understood(fmt::format("unexpected argument \"{}\"", argument), help);
  return not_understood(fmt::format("there is no option \"{}\"{}", name, base::did_you_mean(name, options)), help);
}

CLI::Validator between(int least, int most) {
  const auto complaint = [=](const std::string& text) -> std::string {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc{} && end == text.data() + text.size();
    if (number && value >= least && value <= most) return "";
    return fmt::format("must be between {} and {}, got \"{}\"", least, most, text);
  };
  return CLI::Validator(complaint, "");
}

int run(int argc, char** argv) {
  CLI::App app;
  app.allow_extras();
  app.require_subcommand(0, 1);
  bool wants_version = false;
  app.add_flag("--version", wants_version);

  CLI::App* demo_command = app.add_subcommand("demo");
  DemoOptions demo_options;
  int width = 0;
  bool no_color = false;
  demo_command->allow_extras();
  demo_command->add_option("--strategy", demo_options.strategy)->type_name("NAME");
  demo_command->add_flag("--json", demo_options.json);
  demo_command->add_option("--width", width)
      ->type_name("N")
      ->check(between(Terminal::kLeastWidth, Terminal::kMostWidth));
  demo_command->add_flag("--no-color", no_color);

  CLI::App* version_command = app.add_subcommand("version");
  version_command->allow_extras();
  CLI::App* help_command = app.add_subcommand("help");
  std::string topic;
  help_command->allow_extras();
  help_command->add_option("topic", topic);
  const std::vector<std::string> commands{"demo", "version", "help"};

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return write(demo_command->parsed() ? kDemoHelp : kHelp);
  } catch (const CLI::ParseError& error) {
    return not_understood(error.what(), demo_command->parsed() ? "headgate demo --help" : "headgate --help");
  }

  if (const auto extras = app.remaining(); !extras.empty()) {
    return extras[0].starts_with('-') ? unexpected(extras[0], "", {"--help", "--version"})
                                      : unknown_command(extras[0], commands);
  }
  if (const auto extras = demo_command->remaining(); !extras.empty()) {
    return unexpected(extras[0], " demo", {"--strategy", "--json", "--width", "--no-color", "--help"});
  }
  for (const CLI::App* command : {version_command, help_command}) {
    if (const auto extras = command->remaining(); !extras.empty()) return unexpected(extras[0], "", {"--help"});
  }

  if (wants_version || version_command->parsed()) return write("headgate " HEADGATE_VERSION "\n");
  if (help_command->parsed()) {
    if (topic == "demo") return write(kDemoHelp);
    if (topic.empty() || topic == "help" || topic == "version") return write(kHelp);
    return unknown_command(topic, commands);
  }
  if (demo_command->parsed()) {
    Terminal terminal = Terminal::detect();
    if (width != 0) terminal.width = width;
    if (no_color) terminal.colour = false;
    const auto text = demo(demo_options, terminal);
    if (text) return write(*text);
    return not_understood(text.error().message, "headgate demo --help");
  }
  fmt::print(stderr, "{}", kHelp);
  return kUsage;
}

}  // namespace
}  // namespace headgate::cli

int main(int argc, char** argv) {
  try {
    return headgate::cli::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headgate: %s\n", error.what());
    return 1;
  }
}

// `headgate demo` on the command line; what it shows is made in demo.cc.
#include <memory>

#include "cli/command.h"
#include "cli/view/demo.h"

namespace headgate::cli {
namespace {

constexpr const char* kHelp = R"(headgate demo: compare the eight strategies side by side

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

struct Options {
  DemoOptions demo;
  TerminalOptions terminal;
};

}  // namespace

Command demo_command(Arguments parent) {
  Arguments arguments = parent.command("demo");
  auto options = std::make_shared<Options>();
  arguments.option("--strategy", options->demo.strategy).value_name("NAME");
  arguments.flag("--json", options->demo.json);
  options->terminal.add_to(arguments);
  return {"demo", kHelp, arguments, [options] {
            const auto text = demo(options->demo, options->terminal.terminal());
            return text ? write(*text) : not_understood(text.error().message, "demo");
          }};
}

}  // namespace headgate::cli

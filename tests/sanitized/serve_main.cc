// `headgate serve` alone, for builds with a sanitizer: the server is the same, and the other commands, most of what
// takes long to compile, are left out.
#include <cstdio>

#include "cli/command.h"

int main(int argc, char** argv) {
  try {
    CLI::App app;
    app.require_subcommand(1);
    const headgate::cli::Command serve = headgate::cli::serve_command(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return headgate::cli::not_understood(error.what(), "serve");
    }
    return serve.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headgate: %s\n", error.what());
    return 1;
  }
}

// `headgate serve` alone, for builds with a sanitizer: the server is the same, and the other commands, most of what
// takes long to compile, are left out.
#include <cstdio>

#include "cli/command.h"

int main(int argc, char** argv) {
  try {
    headgate::cli::ArgumentParser parser;
    const headgate::cli::Command serve = headgate::cli::serve_command(parser.program());
    std::string message;
    if (parser.parse(argc, argv, message) != headgate::cli::ArgumentParser::Parsed::kDone) {
      return headgate::cli::not_understood(message, "serve");
    }
    for (const std::string& word : serve.arguments.unexpected()) {
      return headgate::cli::not_understood("there is no option \"" + word + "\"", "serve");
    }
    return serve.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headgate: %s\n", error.what());
    return 1;
  }
}

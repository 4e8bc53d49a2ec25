#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

namespace headgate::cli {

int write(std::string_view text) {
  // Not by way of stdio, which writes line by line to a terminal, with log lines of other threads between them.
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno != EINTR) {
      return failed("standard output cannot be written: " + std::generic_category().message(errno));
    }
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  return kDone;
}

int failed(std::string_view message) {
  fmt::print(stderr, "headgate: {}\n", message);
  return kFailed;
}

int not_understood(std::string_view message, std::string_view command) {
  fmt::print(stderr, "headgate: {}\nSee \"headgate {}{}--help\".\n", message, command, command.empty() ? "" : " ");
  return command == "check" ? kFailed : kUsage;
}

ValueCheck between(int least, int most) {
  return [=](const std::string& text) -> std::string {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc{} && end == text.data() + text.size();
    if (number && value >= least && value <= most) return "";
    return fmt::format("must be between {} and {}, got \"{}\"", least, most, text);
  };
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void TerminalOptions::add_to(Arguments arguments) {
  arguments.option("--width", width).value_name("N").check(between(Terminal::kLeastWidth, Terminal::kMostWidth));
  arguments.flag("--no-color", no_color);
}

Terminal TerminalOptions::terminal() const {
  Terminal terminal = Terminal::detect();
  if (width != 0) terminal.width = width;
  if (no_color) terminal.colour = false;
  return terminal;
}

bool read_policies(const std::vector<std::string>& paths, policy::Document& document) {
  if (paths.empty()) return true;
  policy::ReadResult read = policy::read_paths(paths);
  for (const policy::Problem& problem : read.problems) fmt::print(stderr, "{}\n", problem.text());
  for (const policy::Problem& note : read.notes) {
    policy::Problem told = note;
    told.message = "note: " + told.message;
    fmt::print(stderr, "{}\n", told.text());
  }
  if (!read.ok()) return false;
  document = std::move(read.document);
  return true;
}

}  // namespace headgate::cli

#include "cli/view/terminal.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>

namespace headgate::cli {
namespace {

const char* code(Ink ink) {
  switch (ink) {
    case Ink::kPlain: return "0";
    case Ink::kBold: return "1";
    case Ink::kDim: return "2";
    case Ink::kGreen: return "32";
    case Ink::kRed: return "31";
    case Ink::kYellow: return "33";
    case Ink::kCyan: return "36";
    case Ink::kBlue: return "94";
  }
  return "0";
}

}  // namespace

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

std::string joined(const std::vector<std::string>& texts, std::string_view between) {
  return fmt::format("{}", fmt::join(texts, between));
}

Terminal Terminal::detect() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = std::clamp<int>(size.ws_col, kLeastWidth, kMostWidth);
  }
  const bool dumb = environment("TERM") == "dumb";
  terminal.colour = !dumb && environment("NO_COLOR").empty();
  std::setlocale(LC_CTYPE, "");
  terminal.unicode = !dumb && std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  return terminal;
}

std::string Terminal::paint(std::string_view text, Ink ink) const {
  if (!colour || ink == Ink::kPlain) return std::string(text);
  return std::string("\033[") + code(ink) + "m" + std::string(text) + "\033[0m";
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return out;
}

std::vector<std::string> wrap(std::string_view text, int width, int indent) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::vector<std::string> lines;
  std::string line = margin;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool begun = line.size() > margin.size();
    if (begun && line.size() + 1 + word.size() > static_cast<std::size_t>(width)) {
      lines.push_back(line);
      line = margin;
    } else if (begun) {
      line += ' ';
    }
    line += word;
  }
  lines.push_back(line);
  return lines;
}

}  // namespace headgate::cli

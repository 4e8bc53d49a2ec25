// Where the output goes, and what it can show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headgate::cli {

enum class Ink { kPlain, kBold, kDim, kGreen, kRed, kYellow, kCyan, kBlue };

struct Terminal {
  static constexpr int kDefaultWidth = 80;
  static constexpr int kLeastWidth = 40;
  static constexpr int kMostWidth = 400;

  int width = kDefaultWidth;
  bool colour = false;
  bool unicode = false;  // else ASCII only

  // What standard output is: colour and Unicode only on a terminal; NO_COLOR and TERM=dumb are honoured, and Unicode
  // needs a UTF-8 locale. Anything but a terminal gets plain ASCII at 80 columns.
  [[nodiscard]] static Terminal detect();

  [[nodiscard]] std::string paint(std::string_view text, Ink ink) const;
};

// Without what would steer a terminal: control characters read as '?'.
[[nodiscard]] std::string printable(std::string_view text);

// What a variable of the environment says; empty if it is not there.
[[nodiscard]] std::string_view environment(const char* name);

[[nodiscard]] std::string joined(const std::vector<std::string>& texts, std::string_view between);

// Breaks text between words so that no line, indented by `indent`, is longer than `width`.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, int width, int indent);

}  // namespace headgate::cli

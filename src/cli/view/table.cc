#include "cli/view/table.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace headgate::cli {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 3;

constexpr bool continues(char c) noexcept { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// The first so many characters.
std::string_view first(std::string_view text, std::size_t count) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (!continues(text[at]) && count-- == 0) break;
  }
  return text.substr(0, at);
}

// Breaks between words where it can, else after a mark within a word, else anywhere.
std::vector<std::string> broken(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (columns_of(text) > width) {
    std::string_view line = first(text, width);
    const std::size_t space = text[line.size()] == ' ' ? line.size() : line.rfind(' ');
    const bool between_words = space != std::string_view::npos && space > 0;
    if (between_words) {
      line = line.substr(0, space);
    } else if (const std::size_t mark = line.find_last_of("-_.:/"); mark != std::string_view::npos && mark > 0) {
      line = line.substr(0, mark + 1);
    }
    lines.emplace_back(line);
    text.remove_prefix(line.size());
    while (between_words && text.starts_with(' ')) text.remove_prefix(1);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

std::size_t columns_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

// As wide as their contents; if there is no room for that, columns that can be broken between words are narrowed first.
std::vector<std::size_t> Table::widths(std::size_t room) const {
  std::vector<std::size_t> widths;
  std::vector<std::size_t> words;  // the longest of each column
  const auto measure = [&](std::string_view text, std::size_t& widest, std::size_t& word) {
    widest = std::max(widest, columns_of(text));
    for (; !text.empty(); text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1)) {
      word = std::max(word, columns_of(text.substr(0, text.find(' '))));
    }
  };
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    measure(columns_[c].title, widths.emplace_back(0), words.emplace_back(0));
    for (const auto& row : rows_) measure(row[c].text, widths[c], words[c]);
  }
  const std::size_t gaps = kGap * (columns_.size() - 1);
  while (std::accumulate(widths.begin(), widths.end(), gaps) > room) {
    std::size_t widest = 0;
    const auto rank = [&](std::size_t c) { return std::pair(widths[c] > words[c], widths[c]); };
    for (std::size_t c = 1; c < widths.size(); ++c) {
      if (rank(c) > rank(widest)) widest = c;
    }
    if (widths[widest] <= kNarrowest) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::text(const Terminal& terminal, int indent) const {
  const std::vector<std::size_t> widths = this->widths(static_cast<std::size_t>(std::max(terminal.width - indent, 1)));
  std::string out;
  const auto add_row = [&](const std::vector<Cell>& row) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      cells.push_back(broken(row[c].text, widths[c]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t h = 0; h < height; ++h) {
      std::string line(static_cast<std::size_t>(indent), ' ');
      std::size_t blanks = 0;  // held back, so that no line ends with any
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const std::string piece = h < cells[c].size() ? cells[c][h] : "";
        const std::size_t fill = widths[c] - std::min(widths[c], columns_of(piece));
        const bool right = columns_[c].align == Align::kRight;
        if (!piece.empty()) {
          line.append(blanks + (right ? fill : 0), ' ');
          line += terminal.paint(piece, row[c].ink);
          blanks = right ? 0 : fill;
        } else {
          blanks += widths[c];
        }
        blanks += kGap;
      }
      while (line.ends_with(' ')) line.pop_back();
      out += line + "\n";
    }
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back({column.title, Ink::kDim});
  add_row(titles);
  for (const auto& row : rows_) add_row(row);
  return out;
}

}  // namespace headgate::cli

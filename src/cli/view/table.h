// Aligned tables that keep within the terminal's width: what does not fit is broken within its column.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/view/terminal.h"

namespace headgate::cli {

class Table {
 public:
  enum class Align : std::uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  struct Cell {
    std::string text;  // ASCII, or of one column a character
    Ink ink = Ink::kPlain;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: as many cells as columns.
  void add(std::vector<Cell> cells) {
    assert(cells.size() == columns_.size());
    for (Cell& cell : cells) cell.text = printable(cell.text);
    rows_.push_back(std::move(cells));
  }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] std::string text(const Terminal& terminal, int indent = 0) const;

 private:
  [[nodiscard]] std::vector<std::size_t> widths(std::size_t room) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// How many columns a text takes: characters, not bytes.
[[nodiscard]] std::size_t columns_of(std::string_view text) noexcept;

}  // namespace headgate::cli

#include "cli/view/timeline.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace headgate::cli {
namespace {

constexpr std::size_t kGutter = 12;  // two of margin, ten for the row's name

struct Glyph {
  const char* unicode;
  const char* ascii;
  Ink ink;

  [[nodiscard]] const char* shape(const Terminal& terminal) const { return terminal.unicode ? unicode : ascii; }
  [[nodiscard]] std::string on(const Terminal& terminal) const { return terminal.paint(shape(terminal), ink); }
};

constexpr Glyph kBlank{" ", " ", Ink::kPlain};
constexpr Glyph kAxis{"─", "-", Ink::kDim};
constexpr Glyph kTick{"┴", "+", Ink::kDim};
constexpr Glyph kBoundary{"┊", ":", Ink::kDim};
constexpr Glyph kBoundaryOnAxis{"┼", "|", Ink::kDim};
constexpr Glyph kAct{"│", "|", Ink::kCyan};

Glyph glyph(Mark mark) {
  switch (mark) {
    case Mark::kAdmitted: return {"●", "o", Ink::kGreen};
    case Mark::kDelayed: return {"◐", "~", Ink::kCyan};
    case Mark::kBurst: return {"◆", "+", Ink::kYellow};
    case Mark::kRefused: return {"×", "x", Ink::kRed};
  }
  return kBlank;
}

// A bar whose height is the share that remains; in ASCII the number itself, or + where it has two digits.
Glyph level(Units remaining, Units limit) {
  static constexpr std::array<const char*, 9> kBars{"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<const char*, 11> kDigits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "+"};
  const Units eighths = limit > 0 ? (remaining * 8 + limit - 1) / limit : 0;
  return {kBars[static_cast<std::size_t>(std::clamp<Units>(eighths, 0, 8))],
          kDigits[static_cast<std::size_t>(std::clamp<Units>(remaining, 0, 10))],
          remaining == 0 ? Ink::kDim : Ink::kBlue};
}

// One row of the drawing, column by column.
class Row {
 public:
  Row(std::string name, std::size_t columns) : name_(std::move(name)), cells_(columns, kBlank) {}
  void put(std::size_t column, const Glyph& glyph) {
    if (column < cells_.size()) cells_[column] = glyph;
  }
  [[nodiscard]] std::string text(const Terminal& terminal) const {
    std::string text = "  " + terminal.paint(name_, Ink::kDim) + std::string(kGutter - 2 - name_.size(), ' ');
    std::size_t size = cells_.size();
    while (size > 0 && std::string_view(cells_[size - 1].ascii) == kBlank.ascii) --size;
    std::string run;  // neighbours of one colour are painted together
    for (std::size_t i = 0; i < size; ++i) {
      run += cells_[i].shape(terminal);
      if (i + 1 < size && cells_[i + 1].ink == cells_[i].ink) continue;
      text += terminal.paint(run, cells_[i].ink);
      run.clear();
    }
    return text;
  }

 private:
  std::string name_;
  std::vector<Glyph> cells_;
};

class Drawing {
 public:
  Drawing(const Timeline& timeline, const Terminal& terminal) : timeline_(timeline), terminal_(terminal) {
    slots_per_column_ = static_cast<std::size_t>(slots_per_column(timeline.slots, terminal));
    columns_ = (static_cast<std::size_t>(timeline.slots) + slots_per_column_ - 1) / slots_per_column_;
  }

  void draw_calls() {
    std::vector<std::vector<Mark>> stacks(columns_);
    std::size_t height = 1;
    for (const TimelineCall& call : timeline_.calls) {
      auto& stack = stacks[std::min(column(call.at), columns_ - 1)];
      stack.push_back(call.mark);
      height = std::max(height, stack.size());
    }
    for (std::size_t level = height; level-- > 0;) {
      Row row = new_row(level == 0 ? "calls" : "");
      for (std::size_t c = 0; c < columns_; ++c) {
        if (level < stacks[c].size()) row.put(c, glyph(stacks[c][level]));
      }
      add(row);
    }
  }

  void draw_axis() {
    Row row("", columns_);
    for (std::size_t c = 0; c < columns_; ++c) row.put(c, kAxis);
    for (const TimelineTick& tick : timeline_.ticks) row.put(column(tick.at), kTick);
    for (const Nanos at : timeline_.boundaries) row.put(column(at), kBoundaryOnAxis);
    add(row);
    std::string labels(kGutter, ' ');
    for (const TimelineTick& tick : timeline_.ticks) {
      const std::size_t from = kGutter + column(tick.at);
      const bool touches = labels.size() > kGutter && from <= labels.size();
      if (touches || from + tick.label.size() > static_cast<std::size_t>(terminal_.width)) continue;
      labels.resize(from, ' ');
      labels += tick.label;
    }
    lines_.push_back(terminal_.paint(labels, Ink::kDim));
  }

  void draw_acts() {
    const bool delayed = std::any_of(timeline_.calls.begin(), timeline_.calls.end(),
                                     [](const TimelineCall& call) { return call.mark == Mark::kDelayed; });
    if (!delayed) return;
    Row row("acts", columns_);
    for (const Nanos at : timeline_.acts) row.put(column(at), kAct);
    add(row);
  }

  void draw_remaining() {
    Row row("remaining", columns_);
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::size_t last = std::min((c + 1) * slots_per_column_, timeline_.remaining.size());
      if (last > 0) row.put(c, level(timeline_.remaining[last - 1], timeline_.limit));
    }
    add(row);
  }

  [[nodiscard]] std::vector<std::string> lines() && { return std::move(lines_); }

 private:
  [[nodiscard]] std::size_t column(Nanos at) const {
    return static_cast<std::size_t>(at / timeline_.slot) / slots_per_column_;
  }
  [[nodiscard]] Row new_row(const char* name) const {
    Row row(name, columns_);
    for (const Nanos at : timeline_.boundaries) row.put(column(at), kBoundary);
    return row;
  }
  void add(const Row& row) { lines_.push_back(row.text(terminal_)); }

  const Timeline& timeline_;
  const Terminal& terminal_;
  std::size_t slots_per_column_ = 1;
  std::size_t columns_ = 1;
  std::vector<std::string> lines_;
};

}  // namespace

int slots_per_column(int slots, const Terminal& terminal) {
  const int room = terminal.width - static_cast<int>(kGutter);
  return (slots + room - 1) / room;
}

std::vector<std::string> draw(const Timeline& timeline, const Terminal& terminal) {
  assert(terminal.width >= Terminal::kLeastWidth);
  Drawing drawing(timeline, terminal);
  drawing.draw_calls();
  drawing.draw_axis();
  drawing.draw_acts();
  drawing.draw_remaining();
  return std::move(drawing).lines();
}

std::vector<std::string> legend(const Terminal& terminal) {
  struct Entry {
    Mark mark;
    std::string_view meaning;
  };
  static constexpr std::array<Entry, 4> kEntries{{{Mark::kAdmitted, "admitted"},
                                                  {Mark::kDelayed, "admitted, to act later"},
                                                  {Mark::kBurst, "admitted as burst"},
                                                  {Mark::kRefused, "refused"}}};
  std::vector<std::string> lines;
  std::size_t used = 0;
  for (const auto& [mark, meaning] : kEntries) {
    const std::size_t columns = meaning.size() + 4;  // a gap of two, the mark and a space
    if (lines.empty() || used + columns > static_cast<std::size_t>(terminal.width)) {
      lines.emplace_back();
      used = 0;
    }
    lines.back() += "  " + glyph(mark).on(terminal) + " " + std::string(meaning);
    used += columns;
  }
  return lines;
}

}  // namespace headgate::cli

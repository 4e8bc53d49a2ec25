#include "cli/view/top_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/view/describe.h"
#include "cli/view/table.h"

namespace headgate::cli {
namespace {

constexpr int kWide = 80;      // from here on two tables stand side by side
constexpr int kMedium = 60;    // from here on counts are written out
constexpr int kSparkRoom = 9;  // "denied   "
constexpr int kBetween = 3;
constexpr std::size_t kMinute = 60;

// So many characters of it, the rest as blanks.
std::string fitted(std::string_view text, std::size_t columns) {
  std::string out = printable(text);
  if (columns_of(out) > columns) {
    std::size_t bytes = 0;
    for (std::size_t seen = 0; bytes < out.size(); ++bytes) {
      const bool starts = (static_cast<unsigned char>(out[bytes]) & 0xC0U) != 0x80U;
      if (starts && seen++ == columns - 1) break;
    }
    out.resize(bytes);
    out += '~';
  }
  return out + std::string(columns - columns_of(out), ' ');
}

// A line in pieces, cut where the terminal ends.
class Line {
 public:
  Line(const Terminal& terminal, int columns) : terminal_(&terminal), left_(static_cast<std::size_t>(columns)) {}
  Line& add(std::string_view text, Ink ink = Ink::kPlain) {
    const std::size_t wanted = columns_of(text);
    std::string piece = wanted <= left_ ? std::string(text) : left_ > 0 ? fitted(text, left_) : "";
    left_ -= std::min(left_, wanted);
    if (piece.find_first_not_of(' ') == std::string::npos) {
      blanks_ += piece;  // held back, so that no line ends with any
      return *this;
    }
    std::string after;
    while (piece.ends_with(' ')) {
      piece.pop_back();
      after += ' ';
    }
    text_ += blanks_ + terminal_->paint(piece, ink);
    blanks_ = after;
    return *this;
  }
  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  const Terminal* terminal_;
  std::size_t left_;
  std::string text_;
  std::string blanks_;
};

struct Ranked {
  std::string name;
  std::uint64_t admitted = 0;
  std::uint64_t denied = 0;
  bool limited = false;
};

std::vector<Ranked> sorted(std::vector<Ranked> rows, TopSort sort) {
  std::stable_sort(rows.begin(), rows.end(), [sort](const Ranked& a, const Ranked& b) {
    if (sort == TopSort::kAllowed && a.admitted != b.admitted) return a.admitted > b.admitted;
    if (sort == TopSort::kDenied && a.denied != b.denied) return a.denied > b.denied;
    return a.name < b.name;
  });
  return rows;
}

// A table of names and two counts in exactly so many columns: a title, then rows.
struct Block {
  const char* title;
  const char* admitted;
  std::vector<Ranked> rows;

  void add_to(Line& line, std::size_t row, int columns, bool dim) const {
    const bool shorter = columns < kMedium;
    const std::size_t count = shorter ? 8 : 13;
    const std::size_t name = static_cast<std::size_t>(columns) - 2 * count;
    const auto number = [&](std::uint64_t value) {
      return fmt::format("{:>{}}", shorter ? short_count(value) : count_text(value), count);
    };
    if (row == 0) {
      line.add(fitted(title, name) + fmt::format("{:>{}}{:>{}}", admitted, count, "DENIED", count), Ink::kDim);
      return;
    }
    if (row > rows.size()) {
      line.add(std::string(static_cast<std::size_t>(columns), ' '));
      return;
    }
    const Ranked& about = rows[row - 1];
    const Ink plain = dim ? Ink::kDim : Ink::kPlain;
    line.add(fitted(about.name, name), about.limited && !dim ? Ink::kRed : plain);
    line.add(number(about.admitted), plain);
    line.add(number(about.denied), dim ? Ink::kDim : about.denied > 0 ? Ink::kYellow : Ink::kPlain);
  }
};

const char* sort_text(TopSort sort) {
  switch (sort) {
    case TopSort::kAllowed: return "allowed";
    case TopSort::kDenied: return "denied";
    case TopSort::kName: return "name";
  }
  return "";
}

class Frame {
 public:
  Frame(const TopView& view, TopSize size, const Terminal& terminal)
      : view_(view), size_(size), terminal_(terminal), stale_(!view.trouble.empty()) {}

  std::vector<std::string> draw() {
    title();
    if (stale_) add(line().add("no answer: " + printable(view_.trouble) + "; trying again", Ink::kRed));
    if (view_.help) {
      help();
    } else if (view_.overview) {
      body(*view_.overview);
    } else if (!stale_) {
      add(line().add("waiting for the first answer", Ink::kDim));
    }
    if (view_.keys) footer();
    if (lines_.size() > static_cast<std::size_t>(size_.rows)) lines_.resize(static_cast<std::size_t>(size_.rows));
    return std::move(lines_);
  }

 private:
  [[nodiscard]] Line line() const { return {terminal_, size_.columns}; }
  void add(const Line& line) { lines_.push_back(line.text()); }
  [[nodiscard]] Ink ink(Ink fresh) const { return stale_ ? Ink::kDim : fresh; }

  void title() {
    Line top = line();
    top.add("headgate", Ink::kBold);
    if (view_.overview) top.add(" " + view_.overview->version);
    top.add(" at " + view_.url);
    if (view_.overview && size_.columns >= kMedium) top.add(", up " + span_text(view_.overview->uptime));
    if (view_.paused) top.add("  paused", Ink::kYellow);
    add(top);
  }

  void body(const Overview& overview) {
    const bool wide = size_.columns >= kWide;
    const Ink strained = ink(overview.load_factor == 1 ? Ink::kPlain : Ink::kYellow);
    const std::string latency =
        fmt::format("p50 {}, p99 {}", latency_text(overview.p50_us), latency_text(overview.p99_us));
    if (wide) {
      add(line().add(
          fmt::format("cells {} of {}   connections {}   leases {}   waiting {}", short_count(overview.cells),
                      short_count(overview.max_cells), short_count(overview.http + overview.resp + overview.grpc),
                      short_count(overview.leases), short_count(overview.waiting)),
          ink(Ink::kPlain)));
    } else {
      add(line().add(fmt::format("cells {}   {}", short_count(overview.cells), latency), ink(Ink::kPlain)));
    }
    Line state = line();
    state.add("load " + load_text(overview), strained);
    if (wide) state.add("   " + latency, ink(Ink::kPlain));
    // In an emergency its reason gets a line of its own.
    const bool beside = wide && !overview.emergency;
    if (!beside) {
      add(state);
      state = line();
    }
    state.add(beside ? "   emergency " : "emergency ", ink(Ink::kPlain));
    state.add(overview.emergency ? "ON" : "off", ink(overview.emergency ? Ink::kRed : Ink::kPlain));
    if (overview.emergency && !overview.emergency_reason.empty()) {
      state.add(": " + printable(overview.emergency_reason), ink(Ink::kPlain));
    }
    add(state);
    if (view_.queue) commands(*view_.queue);
    add(line());
    rate("checks", overview.checks_per_second, overview.allowed + overview.denied, view_.checks, Ink::kGreen);
    rate("denied", overview.denied_per_second, overview.denied, view_.denials, Ink::kRed);
    if (overview.errors > 0 || overview.errors_per_second > 0) {
      add(line().add(
          fmt::format("errors   {}/s, {} in all", rate_text(overview.errors_per_second), count_text(overview.errors)),
          ink(Ink::kRed)));
    }
    add(line());
    tables(overview, wide);
  }

  // Who runs commands and, where some wait, who is first in line.
  void commands(const QuotaQueue& queue) {
    const bool slowed = queue.factor < 1 || queue.waiting > 0;
    add(line().add("commands " + queue_text(queue), ink(slowed ? Ink::kYellow : Ink::kPlain)));
    if (queue.line.empty()) return;
    Line first = line();
    first.add("in line  ", ink(Ink::kPlain));
    for (const QuotaQueue::Waiting& waiting : queue.line) {
      const std::string who = fmt::format("{} {} {} ({})", waiting.position, printable(waiting.user),
                                          printable(waiting.type), span_text(waiting.waited));
      const bool begun = &waiting != &queue.line.front();
      constexpr std::size_t kMore = 5;  // ", ..."
      if (begun && columns_of(who) + 2 + kMore > first.left()) {
        first.add(", ...", ink(Ink::kDim));
        break;
      }
      first.add((begun ? ", " : "") + who, ink(Ink::kPlain));
    }
    add(first);
  }

  // The rate, its last minute, and how many in all.
  void rate(const char* name, double per_second, std::uint64_t total, const std::vector<double>& history, Ink shade) {
    const std::string now = fmt::format("{:>9}/s ", rate_text(per_second));
    const std::string all = fmt::format("{:>7} in all", short_count(total));
    Line row = line();
    row.add(fitted(name, static_cast<std::size_t>(kSparkRoom)) + now, ink(Ink::kPlain));
    const bool total_fits = row.left() > all.size() + kMinute / 2;
    const std::size_t room = std::min(kMinute, row.left() - (total_fits ? std::min(row.left(), all.size()) : 0));
    row.add(fitted_right(sparkline(history, room, terminal_.unicode), room), ink(shade));
    if (total_fits) row.add(all, Ink::kDim);
    add(row);
  }
  static std::string fitted_right(const std::string& text, std::size_t columns) {
    return std::string(columns - std::min(columns, columns_of(text)), ' ') + text;
  }

  void tables(const Overview& overview, bool wide) {
    Block agents{"AGENT", "ALLOWED", {}};
    for (const Overview::Agent& agent : overview.agents) {
      agents.rows.push_back({agent.name.empty() ? "(none)" : agent.name, agent.allowed, agent.denied, agent.limited});
    }
    agents.rows = sorted(std::move(agents.rows), view_.sort);
    Block policies{"POLICY", "ADMITTED", {}};
    for (const Overview::Policy& policy : overview.top_policies) {
      policies.rows.push_back({policy.id, policy.admitted, policy.denied, false});
    }
    policies.rows = sorted(std::move(policies.rows), view_.sort);
    const std::size_t taken = lines_.size() + (view_.keys ? 2 : 0);
    const std::size_t room =
        static_cast<std::size_t>(size_.rows) - std::min(static_cast<std::size_t>(size_.rows), taken);
    if (wide) {
      const int left = (size_.columns - kBetween) / 2;
      const std::size_t rows = std::min(room, 1 + std::max(agents.rows.size(), policies.rows.size()));
      for (std::size_t row = 0; row < rows; ++row) {
        Line both = line();
        agents.add_to(both, row, left, stale_);
        both.add(std::string(kBetween, ' '));
        policies.add_to(both, row, size_.columns - kBetween - left, stale_);
        add(both);
      }
      return;
    }
    // Half of the room each; what one does not need the other gets.
    const std::size_t both = room - std::min<std::size_t>(room, 1);
    const std::size_t least = std::min(policies.rows.size() + 1, both / 2);
    const std::size_t first = std::min(agents.rows.size() + 1, both - least);
    stacked(agents, first);
    if (first < room) add(line());
    stacked(policies, std::min(policies.rows.size() + 1, both - std::min(both, first)));
  }
  void stacked(const Block& block, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row) {
      Line one = line();
      block.add_to(one, row, size_.columns, stale_);
      add(one);
    }
  }

  void help() {
    add(line());
    for (const char* text :
         {"a  sort by allowed", "d  sort by denied", "n  sort by name", "p  pause, or go on", "?  this, or back",
          "q  quit", "", "Red agents are over a limit now. The bars are the", "last minute, newest on the right."}) {
      add(line().add(text));
    }
  }

  // On the last line.
  void footer() {
    const std::size_t last = static_cast<std::size_t>(std::max(size_.rows, 1)) - 1;
    while (lines_.size() < last) lines_.emplace_back();
    lines_.resize(last);
    const std::string by = sort_text(view_.sort);
    add(line().add(size_.columns >= kMedium
                       ? fmt::format("q quit   a allowed  d denied  n name (by {})   p {}   ? help", by,
                                     view_.paused ? "go on" : "pause")
                       : fmt::format("q quit  a/d/n sort ({})  p  ?", by),
                   Ink::kDim));
  }

  const TopView& view_;
  TopSize size_;
  const Terminal& terminal_;
  bool stale_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string sparkline(const std::vector<double>& values, std::size_t columns, bool unicode) {
  constexpr std::size_t kSteps = 8;
  constexpr std::array<const char*, kSteps> kSparks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, kSteps> kAsciiSparks{".", ":", "-", "=", "+", "*", "#", "@"};
  if (columns == 0) return {};
  std::vector<double> shown = values;
  if (values.size() > columns) {
    shown.assign(columns, 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double& column = shown[i * columns / values.size()];
      column = std::max(column, values[i]);
    }
  }
  const double most = shown.empty() ? 0 : *std::max_element(shown.begin(), shown.end());
  std::string out;
  for (const double value : shown) {
    if (!(value > 0)) {
      out += unicode ? " " : "_";
      continue;
    }
    const auto level = static_cast<std::size_t>(std::ceil(value / most * static_cast<double>(kSteps)));
    out += (unicode ? kSparks : kAsciiSparks)[std::clamp<std::size_t>(level, 1, kSteps) - 1];
  }
  return out;
}

std::vector<std::string> top_frame(const TopView& view, TopSize size, const Terminal& terminal) {
  size.columns = std::max(size.columns, 20);
  size.rows = std::max(size.rows, 5);
  return Frame(view, size, terminal).draw();
}

}  // namespace headgate::cli

#include "engine/decision_lines.h"

#include <algorithm>

#include "base/json_pen.h"
#include "engine/check_json.h"

namespace headgate::engine {
namespace {

constexpr std::size_t kPiece = 64 << 10;

void append_line(const Decided& decided, bool absolute, std::string& out) {
  out += "{\"t\":";
  base::append_json_number(static_cast<double>(decided.at.count()) / 1e6, out);
  if (absolute) {
    out += ",\"time\":";
    base::append_json_number(static_cast<double>(decided.time.count()) / 1e6, out);
  }
  const std::size_t brace = out.size();
  const std::string lease = decided.decision->lease.empty() ? std::string() : std::to_string(decided.index);
  append_json(*decided.decision, out, {.add_wait = true, .lease = lease});
  out[brace] = ',';
  out += '\n';
}

}  // namespace

void DecisionLines::asked(const TraceStep& step) {
  if (step.kind != TraceStep::Kind::kCheck) return;
  absolute_ = step.absolute;
  lines_.push_back({step.index, {}});
}

void DecisionLines::decided(const Decided& decided) {
  if (lines_.size() == 1 && lines_.front().index == decided.index) {
    lines_.pop_front();
    append_line(decided, absolute_, out_);
  } else {
    const auto line = std::lower_bound(lines_.begin(), lines_.end(), decided.index,
                                       [](const Line& each, std::uint64_t index) { return each.index < index; });
    if (line == lines_.end() || line->index != decided.index) return;
    append_line(decided, absolute_, line->text);
    while (!lines_.empty() && !lines_.front().text.empty()) {
      out_ += lines_.front().text;
      lines_.pop_front();
    }
  }
  flush_over(kPiece);
}

void DecisionLines::flush_over(std::size_t most) {
  if (out_.size() <= most) return;
  works_ = works_ && write_(out_);
  out_.clear();
}

void DecisionLines::finish() { flush_over(0); }

}  // namespace headgate::engine

// Traces: what agents asked and what happened besides, line by line, as JSON or as a table.
//
// JSON lines, or CSV whose header has the same names (cost.tokens, context.componentType or attr.componentType for what
// JSON nests; an empty cell is an absent field; a quoted cell ends on its line). Which of the two it is, the first line
// tells. Blank lines do not count. Each line is a check, or has an `event`:
//
//   load           load                              what PUT /api/admin/load reports
//   emergency_on   reason, by                        emergency_off: by
//   override       agent, light, normal, heavy       each {capacity, refill_per_minute}; or "remove": true
//   exempt         agent                             or "remove": true
//   settle         lease, cost                       lease: the zero-based line of the check that holds it
//   release        lease                             renew: lease
//   policies       file                              a reload; looked for beside the trace, then from here
//
// and `t`, milliseconds from the start, or `time`, epoch milliseconds or RFC 3339: one of them throughout, and never
// going back.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/line_fields.h"

namespace headgate::engine {

// All text is borrowed from the reader until it reads the next line.
struct TraceStep {
  enum class Kind : std::uint8_t {
    kCheck,
    kLoad,
    kEmergencyOn,
    kEmergencyOff,
    kOverride,
    kExempt,
    kSettle,
    kRelease,
    kRenew,
    kPolicies,
  };
  Kind kind = Kind::kCheck;
  bool absolute = false;  // `at` is `time`, not `t`
  bool remove = false;    // of an override or exemption
  Nanos at{0};
  std::uint64_t index = 0;  // zero-based, of the lines that count
  int line = 0;             // in the file, from 1
  Check check;              // kCheck
  double load = 0;
  std::uint64_t lease = 0;
  std::string_view agent;
  std::string_view reason;
  std::string_view by;
  std::string_view file;
  std::span<const Cost> costs;  // kSettle
  Override numbers;             // kOverride
};

// A check or event out of fields that have been read; nothing is said about its time.
[[nodiscard]] Result<void> to_step(const LineFields& fields, TraceStep& step);
inline constexpr FieldSet kTraceFields = set_of(Field::kType) - 1;

// Reads a trace as it comes; holds on to one line at a time, of at most kMaxLineBytes.
class TraceReader {
 public:
  // `name` is what messages call it. REQUIRES: `in` outlives the reader.
  TraceReader(std::istream& in, std::string name);
  // "-" is standard input.
  [[nodiscard]] static Result<TraceReader> open(const std::string& path);
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;
  ~TraceReader();

  // False: the trace has ended. An error reads "trace.jsonl:12: what must hold, what came"; then it is over, too.
  [[nodiscard]] Result<bool> next();
  [[nodiscard]] const TraceStep& step() const noexcept { return step_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // "trace.jsonl:12: message", for those who find something wrong with the last line.
  [[nodiscard]] Error error(std::string_view message) const;

 private:
  struct Column {
    Field field = Field::kOperation;
    std::string part;
    std::string name;
  };
  enum class Form : std::uint8_t { kUnknown, kJson, kTable };

  [[nodiscard]] Result<bool> next_line(std::string_view& line);
  [[nodiscard]] Result<void> read_header(std::string_view line);
  [[nodiscard]] Result<void> read_row(std::string_view line);
  [[nodiscard]] Result<void> split(std::string_view line);
  [[nodiscard]] Result<void> take_time();

  std::unique_ptr<std::istream> owned_;
  std::istream* in_;
  std::string name_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what has not been read yet
  std::size_t end_ = 0;
  bool ended_ = false;

  Form form_ = Form::kUnknown;
  std::vector<Column> columns_;
  std::vector<std::string_view> cells_;
  std::string unquoted_;  // the text of cells in quotes
  JsonLine json_;
  LineFields fields_;
  TraceStep step_;
  std::uint64_t lines_ = 0;  // that count
};

}  // namespace headgate::engine

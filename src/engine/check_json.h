// Checks and decisions as JSON, exactly as the contract spells them.
#pragma once

#include <string>
#include <string_view>

#include "engine/check_decision.h"
#include "engine/line_fields.h"
#include "headgate/check.h"
#include "headgate/result.h"

namespace headgate::engine {

inline constexpr std::size_t kMaxCheckBytes = kMaxLineBytes;

// Reads checks, one after the other, and allocates nothing once it has read one as large.
//
// Not for sharing between threads. A field that is unknown, given twice, of the wrong type or out of range is an error
// that names it. Whether a check can be answered at all (its operation, the lengths of its texts) the engine says.
class CheckReader {
 public:
  Result<void> read(std::string_view json) { return json_.read(json, kCheckFields, "a check", fields_); }
  // Its text is borrowed from the reader, until that reads again. REQUIRES: the last read() succeeded.
  [[nodiscard]] const Check& check() const noexcept { return fields_.check; }

 private:
  JsonLine json_;
  LineFields fields_;
};

// Reads what comes over a connection that carries more than checks: a check's fields, a type, an id, a token, a lease.
//
// Not for sharing between threads. Text is borrowed from the reader, until that reads again.
class MessageReader {
 public:
  static constexpr FieldSet kFields =
      kCheckFields | set_of(Field::kType) | set_of(Field::kId) | set_of(Field::kToken) | set_of(Field::kLeaseId);
  Result<void> read(std::string_view json) { return json_.read(json, kFields, "a message", fields_); }
  // After a read() that failed: as far as it came.
  [[nodiscard]] const LineFields& fields() const noexcept { return fields_; }
  // An error if a field is given that is none of these. `what` is how messages call it: "an identify message".
  [[nodiscard]] Result<void> only(FieldSet allowed, std::string_view what) const;
  // Appends `,"id":7` if it has an id.
  void append_id(std::string& out) const;

 private:
  JsonLine json_;
  LineFields fields_;
};

struct DecisionFormat {
  bool add_wait = false;        // delay_ms includes the time spent in the queue (of a simulation)
  std::string_view lease = {};  // written in place of the decision's own, if that has one
};

// Appends the decision as one JSON object without line breaks. A check that cannot be answered reads
// {"error": "invalid_check", "message": "..."}.
void append_json(const CheckDecision& decision, std::string& out, const DecisionFormat& format = {});

// Amounts are counted in millionths at the finest: 0.4, where a double's noise has made it 0.39999999999999997.
[[nodiscard]] double to_millionths(double amount) noexcept;

}  // namespace headgate::engine

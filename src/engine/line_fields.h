// The fields of a check as JSON and tables name them, and those that lines of a trace and messages of a connection have
// besides: one place for what each may be, for all readers.
//
// Internal to the readers (check_json.h, trace.h). Not for sharing between threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/check.h"
#include "headgate/result.h"
#include "policy/model.h"

namespace headgate::engine {

enum class Field : std::uint8_t {
  kOperation,
  kAgent,
  kSession,
  kUser,
  kTenant,
  kPlan,
  kChannel,
  kIp,
  kResource,
  kContext,
  kContextType,
  kCost,
  kPeek,
  kMaxWait,
  kHold,
  kPriority,
  kParent,
  // From here on: of traces only.
  kT,
  kTime,
  kEvent,
  kLoad,
  kReason,
  kBy,
  kLease,
  kFile,
  kRemove,
  kLight,
  kNormal,
  kHeavy,
  // From here on: of messages only.
  kType,
  kId,
  kToken,
  kLeaseId,  // called "lease", as a trace's number is
};
inline constexpr int kFieldCount = 33;

using FieldSet = std::uint64_t;
constexpr FieldSet set_of(Field field) noexcept { return FieldSet{1} << static_cast<unsigned>(field); }
inline constexpr FieldSet kCheckFields = set_of(Field::kT) - 1;

[[nodiscard]] std::string_view name_of(Field field) noexcept;
// Among `allowed`; nullopt: none is called that.
[[nodiscard]] std::optional<Field> field_named(std::string_view name, FieldSet allowed) noexcept;
// `there is no field "operaton" in a check, did you mean "operation"?`
[[nodiscard]] Error unknown_field(std::string_view name, FieldSet allowed, std::string_view what);

// A value as it came. Of a table nothing is known but its text, which is then read as what the field wants.
struct Scalar {
  enum class Kind : std::uint8_t { kText, kUntyped, kInteger, kNumber, kBoolean, kOther };
  Kind kind = Kind::kText;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;      // of an integer too
  std::string_view text;  // with kOther what it is: "an object"
};

struct LineFields {
  FieldSet given = 0;
  Check check;  // its attributes and costs are below: see finish()
  std::vector<Attribute> attributes;
  std::vector<Cost> costs;
  Nanos t{0};
  Nanos time{0};
  double load = 0;
  std::uint64_t lease = 0;
  bool remove = false;
  std::string_view event;
  std::string_view reason;
  std::string_view by;
  std::string_view file;
  std::string_view type;
  Scalar id;  // text or a whole number
  std::string_view token;
  std::string_view lease_id;
  struct Tier {
    Units capacity = 0;  // 0: not given
    Units refill_per_minute = 0;
  };
  std::array<Tier, policy::kTierCount> tiers;

  [[nodiscard]] bool has(Field field) const noexcept { return (given & set_of(field)) != 0; }
  void clear() noexcept;
  // `part` is what follows the dot in cost.tokens and context.componentType; empty: nothing does.
  Result<void> set(Field field, std::string_view part, const Scalar& value);
  // Whether a field has parts, and then which: "" for any.
  [[nodiscard]] static bool has_parts(Field field) noexcept;
  // Ties the check to its attributes and costs.
  void finish() noexcept {
    check.attributes = attributes;
    check.costs = costs;
  }
};

// Reads one JSON object. What it has read is valid until it reads the next.
class JsonLine {
 public:
  JsonLine();
  ~JsonLine();
  JsonLine(JsonLine&&) noexcept;
  JsonLine& operator=(JsonLine&&) noexcept;

  // `what` is how messages call it: "a check".
  Result<void> read(std::string_view json, FieldSet allowed, std::string_view what, LineFields& fields);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

inline constexpr std::size_t kMaxLineBytes = 1 << 20;
inline constexpr const char* kParentWithoutSession =
    "parent.session must be given: whose budgets are to be debited too?";

}  // namespace headgate::engine

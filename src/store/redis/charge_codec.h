// What the scripts are told and what they answer. Everything that needs more than 53 bits is computed here: the script
// adds and compares, and answers with each cell as it was, from which the strategies themselves make the outcome.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/compiled_limit.h"
#include "store/charge.h"

namespace headgate::store::redis {

// Neither a sliding window nor a wait for a reservation may be longer: its instants are kept modulo 2^47 microseconds.
inline constexpr Nanos kLongestLog = std::chrono::hours{24 * 365 * 2};
inline constexpr Units kMostLogged = Units{1} << 47;  // nor may more units be counted in one

// The limit as it is counted in Redis: spans are whole microseconds, rounded up, and a unit refills in at most 2^40ths
// of a nanosecond, rounded up. Most limits are counted exactly as they are.
[[nodiscard]] core::CompiledLimit as_counted(const core::CompiledLimit& limit) noexcept;
// The Error says why this limit cannot be counted in Redis.
[[nodiscard]] Result<void> countable(const core::CompiledLimit& limit);
// Tells cells apart that were written by other numbers; the same on every machine. REQUIRES: `limit` is as_counted().
[[nodiscard]] std::uint32_t shape_of(const core::CompiledLimit& limit) noexcept;

// One charge of a charge list on its way.
struct CodedCharge {
  core::CompiledLimit limit;   // as_counted()
  std::uint32_t shape = 0;     // of the limit
  std::uint32_t also = 0;      // of cells written by another server that are taken as they stand; 0: none
  Units cost = 0;              // 0 where the cost can never fit
  bool never = false;          //
  bool soft = false;           //
  Nanos patience{0};           //
  core::Span period, another;  // quota: where now lies, and what may be charged ahead
};

// In a cluster, so long after a charge list has charged one slot the charge is undone, unless it was settled.
inline constexpr Nanos kNoteLasts = std::chrono::seconds{2};

// What is asked of all of them.
struct Terms {
  Effect effect = Effect::kCharge;
  Nanos now{0};  // 0: by the clock of Redis
  Nanos patience{0};
  Nanos least{0};      // with kReserve: not sooner than this
  bool apart = false;  // as Ask has it
  LeaseId lease = 0;
  Nanos asked{0};             // by steady_now(): what the deadline counts from
  bool ahead = false;         // of charge lists that wait to be sent
  std::string_view owner{};   // whose share of the queue it takes; empty: of no share
  bool slots = false;         // in a cluster: the notes about the cells are looked at
  std::uint64_t note_as = 0;  // in a cluster: the name under which it is noted what would undo this; 0: it is not
};

void append_terms(const Terms& terms, std::size_t charges, std::string& blob);
void append_charge(const CodedCharge& coded, std::string& blob);
void append_end(const Terms& terms, std::string& blob);  // after the last of them
// One unit of one sliding window, charged by the clock of Redis: what is asked most has a short form.
[[nodiscard]] bool has_short_form(const Terms& terms, const CodedCharge& coded) noexcept;
void append_short(const Terms& terms, const CodedCharge& coded, std::string& blob);

enum class Told : std::uint8_t { kReleased = 3, kRenewed = 4, kRefunded = 5 };
// What tell_script is given. REQUIRES: of a refund, that the limit is no concurrency limit; of all others, that it is.
void append_told(Told told, const CodedCharge& coded, Nanos now, LeaseId lease, Nanos charged_at, std::string& blob);

// What settle_script does with notes: of a charge list that was charged in all slots, of one that was not, and with all
// that have lapsed.
enum class Settling : std::uint8_t { kKeep = 1, kUndo = 2, kLapsed = 3 };
void append_settling(Settling how, Nanos now, std::uint64_t noted_as, std::string& blob);

struct ScriptAnswer {
  enum class Status : std::uint8_t {
    kAdmitted,
    kDenied,
    kStale,
    kOtherPeriod,
    kForeign,
    kLapsed = 7,   // a note has
    kTooLate = 8,  // past the deadline, by the clock of Redis
  };
  Status status = Status::kDenied;
  Nanos now{0};
  Nanos wait{0};          // kAdmitted, kDenied: of the whole charge list, in whole microseconds
  std::size_t index = 0;  // else: which of the charges it is about
  Nanos instant{0};       // kOtherPeriod: that of a period which must be looked up
  std::string_view cells;
};
// nullopt: no answer of a script of ours. What was answered in the short form is written out in `longer`.
[[nodiscard]] std::optional<ScriptAnswer> read_answer(std::string_view text, std::string& longer);

// How many bytes of ScriptAnswer::cells are about a cell of this strategy.
[[nodiscard]] std::size_t told_of(Strategy strategy) noexcept;
// Judges a cost by what the script said of the cell. REQUIRES: told_of() bytes.
[[nodiscard]] core::Outcome judge_told(const CodedCharge& coded, std::string_view cell, Nanos now) noexcept;

}  // namespace headgate::store::redis

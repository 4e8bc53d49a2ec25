#include "store/redis/charge_codec.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "base/hash.h"
#include "base/wide.h"
#include "store/memory/cell.h"
#include "store/redis/bytes.h"
#include "store/redis/cell_codec.h"

namespace headgate::store::redis {
namespace {

using base::Wide;
using core::CompiledLimit;
using core::Outcome;

// What the script calls the strategies.
enum class Kind : std::uint8_t { kBucket = 1, kLeaky = 2, kWindow = 3, kCounter = 4, kLog = 5, kHolds = 6 };

Kind kind_of(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kGcra: return Kind::kBucket;
    case Strategy::kLeakyBucket: return Kind::kLeaky;
    case Strategy::kFixedWindow:
    case Strategy::kQuota: return Kind::kWindow;
    case Strategy::kSlidingWindowCounter: return Kind::kCounter;
    case Strategy::kSlidingWindow: return Kind::kLog;
    case Strategy::kConcurrency: break;
  }
  return Kind::kHolds;
}

constexpr std::int64_t kFinest = std::int64_t{1} << 40;  // parts of a nanosecond, where a bucket has more

Nanos micros_up(Nanos span) noexcept { return Nanos{(span.count() + 999) / 1000 * 1000}; }
Nanos micros_down(Nanos span) noexcept { return Nanos{span.count() / 1000 * 1000}; }

// A bucket in parts of a microsecond, of which `whole` make one.
struct Parts {
  Wide unit = 0;
  Wide fill = 0;
  std::int64_t whole = 1000;

  explicit Parts(const CompiledLimit& limit) noexcept {
    if (limit.strategy == Strategy::kGcra) {
      unit = limit.numbers.gcra.interval.count();
      fill = limit.numbers.gcra.tolerance.count();
      return;
    }
    const core::BucketNumbers& n = limit.numbers.bucket;
    unit = Wide{n.whole} * n.den + n.part;
    fill = Wide{n.fill} * n.den + n.fill_part;
    whole = 1000 * n.den;
  }
};

void put_parts(Wide parts, std::int64_t whole, std::string& blob) {
  put_number(static_cast<std::int64_t>(parts / whole), blob);
  put_number(static_cast<std::int64_t>(parts % whole), blob);
}

void put_shapes(const CodedCharge& coded, std::string& blob) {
  put_bytes(coded.shape, 4, blob);
  put_bytes(coded.also, 4, blob);
}

Nanos window_of(const CompiledLimit& limit) noexcept {
  switch (limit.strategy) {
    case Strategy::kSlidingWindow: return limit.numbers.log.window;
    case Strategy::kSlidingWindowCounter: return limit.numbers.counter.window;
    case Strategy::kConcurrency: return limit.numbers.concurrency.ttl;
    case Strategy::kQuota: return -limit.numbers.window.calendar.longest();
    default: return limit.numbers.window.window;
  }
}

Outcome judge_log(const CodedCharge& coded, std::string_view cell, Nanos now) noexcept {
  const core::LogNumbers& n = coded.limit.numbers.log;
  const Units used = get_number(cell, 8);
  core::RunLog log;
  log.ahead = cell[32] != 0 && used > 0;
  log.seen = log.ahead ? Nanos{0} : get_micros(cell, 0);
  // The run that must leave first, and all the others as the newest.
  std::array<core::Run, 2> runs;
  log.runs = runs.data();
  log.capacity = 2;
  const Units enough = used + coded.cost - n.most;
  if (enough > 0 && enough < used && coded.cost > 0) runs[log.size++] = {get_micros(cell, 24), enough};
  if (used > 0) runs[log.size++] = {get_micros(cell, 16), used};
  Outcome outcome = core::sliding_window(log, n, coded.cost, now);
  if (used + coded.cost >= 2 * kMostLogged) outcome.wait = std::max(outcome.wait, kMaxTime / 4);
  return outcome;
}

Outcome judge_holds(const CodedCharge& coded, std::string_view cell, Nanos now) noexcept {
  const core::ConcurrencyNumbers& n = coded.limit.numbers.concurrency;
  std::array<core::Hold, 2> holds;
  core::HoldTable table;
  table.holds = holds.data();
  table.capacity = 2;
  table.held = std::max<Units>(get_number(cell, 0), 0);
  table.last_expiry = get_micros(cell, 8);
  const Units need = table.held + coded.cost - n.most;
  const Nanos upto = get_micros(cell, 16);
  if (need > 0 && coded.cost > 0) {
    holds[table.size++] = {0, std::max(upto, now + Nanos{1000}), need};
    if (table.last_expiry > upto) holds[table.size++] = {0, table.last_expiry, table.held - need};
  }
  return core::concurrency(table, n, coded.cost, now);
}

}  // namespace

CompiledLimit as_counted(const CompiledLimit& limit) noexcept {
  CompiledLimit counted = limit;
  auto& n = counted.numbers;
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket: {
      core::BucketNumbers& b = n.bucket;
      if (b.den <= kFinest) break;
      b.part = static_cast<std::int64_t>((Wide{b.part} * kFinest + b.den - 1) / b.den);
      b.den = kFinest;
      const Wide fill = (Wide{b.whole} * kFinest + b.part) * limit.most;
      b.fill = static_cast<std::int64_t>(fill / kFinest);
      b.fill_part = static_cast<std::int64_t>(fill % kFinest);
      break;
    }
    case Strategy::kGcra:
    case Strategy::kQuota: break;
    case Strategy::kFixedWindow: n.window.window = micros_up(n.window.window); break;
    case Strategy::kSlidingWindowCounter: n.counter.window = micros_up(n.counter.window); break;
    case Strategy::kSlidingWindow: n.log.window = micros_up(n.log.window); break;
    case Strategy::kConcurrency: n.concurrency.ttl = micros_up(n.concurrency.ttl); break;
  }
  return counted;
}

Result<void> countable(const CompiledLimit& limit) {
  if (limit.strategy == Strategy::kSlidingWindow &&
      (limit.most > kMostLogged || limit.numbers.log.window > kLongestLog)) {
    return Error{ErrorCode::kInvalidArgument,
                 "a sliding_window counted in Redis must be of at most " + std::to_string(kMostLogged) +
                     " units and 2 years, got " + std::to_string(limit.most) + " units in " +
                     std::to_string(limit.numbers.log.window / std::chrono::hours{24}) + " days"};
  }
  return {};
}

std::uint32_t shape_of(const CompiledLimit& limit) noexcept {
  std::array<std::int64_t, 6> numbers{static_cast<std::int64_t>(limit.strategy), limit.limit, limit.most};
  switch (limit.strategy) {
    case Strategy::kTokenBucket:
    case Strategy::kLeakyBucket:
      assert(limit.numbers.bucket.den <= kFinest);
      numbers[3] = limit.numbers.bucket.whole;
      numbers[4] = limit.numbers.bucket.part;
      numbers[5] = limit.numbers.bucket.den;
      break;
    case Strategy::kGcra: numbers[3] = limit.numbers.gcra.interval.count(); break;
    case Strategy::kQuota: numbers[4] = limit.numbers.window.calendar.id(); break;
    default: {
      assert(window_of(limit) == micros_up(window_of(limit)));
      numbers[3] = window_of(limit).count();
    }
  }
  std::uint64_t hash = 0x9E3779B185EBCA87U;
  for (const std::int64_t number : numbers) {
    hash = base::fold(hash ^ static_cast<std::uint64_t>(number), 0xC2B2AE3D27D4EB4FU) + 0x165667B19E3779F9U;
  }
  return std::max(static_cast<std::uint32_t>(hash), 1U);  // 0 means none
}

void append_terms(const Terms& terms, std::size_t charges, std::string& blob) {
  constexpr std::uint64_t kSlots = 8;
  constexpr std::uint64_t kNoted = 16;
  const std::uint64_t flags = (terms.slots ? kSlots : 0) + (terms.note_as != 0 ? kNoted : 0);
  const std::uint64_t apart = terms.effect == Effect::kReserve && terms.apart ? 1 : 0;
  put_bytes(static_cast<std::uint64_t>(terms.effect) + apart + flags, 1, blob);
  put_micros(terms.now, blob);
  put_bytes(terms.lease, 8, blob);
  put_micros(micros_down(std::min(terms.patience, kLongestLog)), blob);
  put_micros(terms.least, blob);
  put_bytes(charges, 1, blob);
}

void append_charge(const CodedCharge& coded, std::string& blob) {
  const CompiledLimit& limit = coded.limit;
  const Kind kind = kind_of(limit.strategy);
  put_bytes(static_cast<std::uint64_t>(kind), 1, blob);
  if (kind != Kind::kHolds) put_shapes(coded, blob);
  put_bytes(coded.soft ? 1 : 0, 1, blob);
  if (kind != Kind::kHolds) put_micros(micros_down(coded.patience), blob);
  if (kind == Kind::kBucket || kind == Kind::kLeaky) {
    const Parts parts(limit);
    put_parts(parts.unit * coded.cost, parts.whole, blob);
    put_parts(parts.fill, parts.whole, blob);
    put_number(parts.whole, blob);
    return;
  }
  put_number(coded.cost, blob);
  put_number(limit.most, blob);
  put_micros(window_of(limit), blob);
  if (kind != Kind::kWindow) return;
  for (const core::Span& span : {coded.period, coded.another}) {
    put_micros(span.start, blob);
    put_micros(span.end, blob);
  }
}

void append_end(const Terms& terms, std::string& blob) {
  if (terms.note_as == 0) return;
  put_bytes(terms.note_as, 8, blob);
  put_micros(kNoteLasts, blob);
}

void append_settling(Settling how, Nanos now, std::uint64_t noted_as, std::string& blob) {
  put_bytes(static_cast<std::uint64_t>(how), 1, blob);
  put_micros(now, blob);
  put_bytes(noted_as, 8, blob);
}

void append_told(Told told, const CodedCharge& coded, Nanos now, LeaseId lease, Nanos charged_at, std::string& blob) {
  assert((told == Told::kRefunded) == (coded.limit.strategy != Strategy::kConcurrency));
  const CompiledLimit& limit = coded.limit;
  const Kind kind = kind_of(limit.strategy);
  put_bytes(static_cast<std::uint64_t>(told), 1, blob);
  put_micros(now, blob);
  put_bytes(lease, 8, blob);
  put_bytes(static_cast<std::uint64_t>(kind), 1, blob);
  if (kind == Kind::kHolds) {
    put_micros(limit.numbers.concurrency.ttl, blob);
    return;
  }
  put_shapes(coded, blob);
  if (kind == Kind::kBucket || kind == Kind::kLeaky) {
    const Parts parts(limit);
    put_parts(parts.unit * coded.cost, parts.whole, blob);
    put_parts(parts.fill, parts.whole, blob);
    put_micros(charged_at, blob);
    put_number(parts.whole, blob);
    put_micros(charged_at, blob);  // when it would have been full is not known: at the earliest then
    return;
  }
  put_number(coded.cost, blob);
  put_micros(window_of(limit), blob);
  // Where it was charged: the instant itself, or its window.
  Nanos where = charged_at;
  if (kind == Kind::kWindow) where = limit.numbers.window.span_at(charged_at).end;
  if (kind == Kind::kCounter) where -= charged_at % limit.numbers.counter.window;
  put_micros(where, blob);
}

bool has_short_form(const Terms& terms, const CodedCharge& coded) noexcept {
  return coded.limit.strategy == Strategy::kSlidingWindow && coded.cost == 1 && !coded.soft && coded.also == 0 &&
         terms.effect == Effect::kCharge && terms.now == Nanos{0} && terms.note_as == 0;
}

void append_short(const Terms& terms, const CodedCharge& coded, std::string& blob) {
  put_bytes(0, 1, blob);
  put_bytes(coded.shape, 4, blob);
  put_number(coded.limit.most, blob);
  put_micros(coded.limit.numbers.log.window, blob);
  if (terms.slots) put_bytes(1, 1, blob);
}

std::optional<ScriptAnswer> read_answer(std::string_view text, std::string& longer) {
  // Admitted: now, the instant, the units. Denied: those, the newest instant and the oldest.
  constexpr char kShortAdmitted = 5;
  constexpr char kShortDenied = 6;
  if (text.size() == 25 && text[0] == kShortAdmitted) {
    longer = std::string(1, 0) + std::string(text.substr(1, 8)) + std::string(8, 0) + std::string(text.substr(9, 16)) +
             std::string(text.substr(9, 8)) + std::string(9, 0);
    text = longer;
  } else if (text.size() == 41 && text[0] == kShortDenied) {
    longer = std::string(1, 1) + std::string(text.substr(1, 8)) + std::string(8, 0) + std::string(text.substr(9, 32)) +
             std::string(1, 0);
    text = longer;
  }
  if (text.size() < 17) return std::nullopt;
  ScriptAnswer answer;
  answer.status = static_cast<ScriptAnswer::Status>(text[0]);
  if (answer.status > ScriptAnswer::Status::kForeign && answer.status != ScriptAnswer::Status::kLapsed &&
      answer.status != ScriptAnswer::Status::kTooLate) {
    return std::nullopt;
  }
  answer.now = get_micros(text, 1);
  if (answer.status <= ScriptAnswer::Status::kDenied) {
    answer.wait = get_micros(text, 9);
    answer.cells = text.substr(17);
    return answer;
  }
  const std::int64_t index = get_number(text, 9) - 1;  // Lua counts from one
  if (index < 0 || index >= static_cast<std::int64_t>(kMaxCharges)) return std::nullopt;
  answer.index = static_cast<std::size_t>(index);
  if (answer.status == ScriptAnswer::Status::kOtherPeriod) {
    if (text.size() < 25) return std::nullopt;
    answer.instant = get_micros(text, 17);
  }
  return answer;
}

std::size_t told_of(Strategy strategy) noexcept {
  switch (kind_of(strategy)) {
    case Kind::kBucket:
    case Kind::kLeaky: return 29;
    case Kind::kWindow:
    case Kind::kCounter: return 37;
    case Kind::kLog: return 33;
    case Kind::kHolds: break;
  }
  return 24;
}

Outcome judge_told(const CodedCharge& coded, std::string_view cell, Nanos now) noexcept {
  assert(cell.size() == told_of(coded.limit.strategy));
  const CompiledLimit& limit = coded.limit;
  Outcome outcome;
  if (limit.strategy == Strategy::kSlidingWindow) {
    outcome = judge_log(coded, cell, now);
  } else if (limit.strategy == Strategy::kConcurrency) {
    outcome = judge_holds(coded, cell, now);
  } else {
    std::array<Word, 4> words{};
    bool ahead = false;
    load_words(limit, cell, words.data(), ahead);
    outcome = judge(limit, words.data(), ahead, coded.cost, now);
  }
  if (coded.never) outcome.wait = kNever;
  outcome.limit = limit.limit;
  return outcome;
}

}  // namespace headgate::store::redis

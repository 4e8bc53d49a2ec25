#include "store/redis/cell_codec.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "store/redis/bytes.h"
#include "store/redis/charge_codec.h"

namespace headgate::store::redis {
namespace {

using core::CompiledLimit;
using core::RunLog;

// The first byte of a cell says what it is; these come on top.
constexpr unsigned kWide = 16;
constexpr unsigned kAhead = 32;
constexpr std::size_t kLogHead = 136;
constexpr std::size_t kTail = 46;
constexpr std::size_t kMostInTail = 15;
constexpr std::uint64_t kInstantBit = std::uint64_t{1} << 47;  // set in every entry; the instant is what is below
constexpr std::uint64_t kTotalMask = (std::uint64_t{1} << 48) - 1;

unsigned kind_byte(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::kFixedWindow:
    case Strategy::kQuota: return 3;
    case Strategy::kSlidingWindowCounter: return 4;
    case Strategy::kSlidingWindow: return 5;
    default: return 1;
  }
}

std::int64_t den_of(const CompiledLimit& limit) noexcept {
  return limit.strategy == Strategy::kGcra ? 1 : limit.numbers.bucket.den;
}

// Where in the bytes of a sliding window things are.
struct LogView {
  std::string_view raw;
  bool wide = false;
  bool ahead = false;
  std::uint64_t head = 0, size = 0, capacity = 0;
  std::size_t tail = 0;  // entries behind the ring

  // nullopt: torn.
  static std::optional<LogView> of(std::string_view raw) noexcept {
    LogView view{raw};
    const auto first = static_cast<unsigned char>(raw[0]);
    view.wide = (first & kWide) != 0;
    view.ahead = (first & kAhead) != 0;
    view.head = get_bytes(raw, 40, 3);
    view.size = get_bytes(raw, 5, 3);
    view.capacity = get_bytes(raw, 43, 3);
    while (!view.wide && view.tail < kMostInTail && get_bytes(raw, kTail + 6 * view.tail, 6) != 0) ++view.tail;
    const std::size_t bytes = kLogHead + view.capacity * (view.wide ? 12 : 6);
    const bool whole = raw.size() == bytes && view.size <= view.capacity && view.capacity <= core::kMaxRuns &&
                       (view.head < view.capacity || view.head == 0);
    if (!whole) return std::nullopt;
    return view;
  }
  [[nodiscard]] std::uint32_t entries() const noexcept { return static_cast<std::uint32_t>(size + tail); }
  [[nodiscard]] std::size_t where(std::uint32_t i) const noexcept {
    if (i >= size) return kTail + 6 * (i - size);
    return kLogHead + (head + i) % capacity * (wide ? 12 : 6);
  }
  [[nodiscard]] core::Run run(std::uint32_t i) const noexcept {
    const std::int64_t oldest = get_micros(raw, 16).count() / 1000;
    const std::uint64_t entry = get_bytes(raw, where(i), 6);
    const auto later = static_cast<std::int64_t>((entry - static_cast<std::uint64_t>(oldest)) & (kInstantBit - 1));
    Units total = i + 1;
    if (wide) {
      const std::uint64_t gone = get_bytes(raw, kTail, 6);
      total = static_cast<Units>((get_bytes(raw, where(i) + 6, 6) - gone) & kTotalMask);
    }
    return {Nanos{std::min(oldest + later, kMaxTime.count() / 1000) * 1000}, total};
  }
};

// False: torn, or no memory.
bool load_log_words(const CompiledLimit& limit, std::string_view raw, Word* words, bool& ahead) {
  const auto view = LogView::of(raw);
  if (!view) return false;
  RunLog log;
  if (view->entries() > 0) {
    const bool grown = view->wide ? grow_log(log, view->entries()) : grow_instants(log, view->entries());
    if (!grown) return false;
  }
  log.size = view->entries();
  for (std::uint32_t i = 0; i < log.size; ++i) log.set_run(i, view->run(i));
  log.ahead = view->ahead && log.size > 0;
  log.seen = std::max(get_micros(raw, 24), get_micros(raw, 32));
  if (log.size > 0) log.seen = std::max(log.seen, log.newest().at);
  store_log(log, limit.numbers.log.window, words, ahead);
  return true;
}

void put_log(const CompiledLimit& limit, const Word* words, bool ahead, Nanos dies, std::string& raw) {
  const RunLog log = load_log(words, ahead, limit.numbers.log.window);
  const bool wide = log.instants == nullptr && log.size > 0;
  const Nanos newest = log.size > 0 ? log.newest().at : Nanos{0};
  put_bytes(log.size, 3, raw);
  put_micros(dies, raw);
  put_micros(log.size > 0 ? log.run(0).at : Nanos{0}, raw);
  put_micros(log.ahead ? Nanos{0} : log.seen, raw);
  put_micros(newest, raw);
  put_bytes(0, 3, raw);
  put_bytes(log.size, 3, raw);
  put_bytes(wide ? static_cast<std::uint64_t>(log.gone) & kTotalMask : 0, 6, raw);
  put_bytes(wide ? static_cast<std::uint64_t>(log.newest().total) & kTotalMask : 0, 6, raw);
  raw.resize(kLogHead);
  for (std::uint32_t i = 0; i < log.size; ++i) {
    const core::Run run = log.run(i);
    put_bytes((static_cast<std::uint64_t>(run.at.count() / 1000) & (kInstantBit - 1)) | kInstantBit, 6, raw);
    if (wide) put_bytes(static_cast<std::uint64_t>(run.total) & kTotalMask, 6, raw);
  }
  if (wide) raw[0] = static_cast<char>(static_cast<unsigned char>(raw[0]) | kWide);
}

// A cell of a Redis on its way through memory.
class LoadedCell {
 public:
  explicit LoadedCell(Strategy strategy) noexcept : strategy_(strategy) {}
  LoadedCell(const LoadedCell&) = delete;
  LoadedCell& operator=(const LoadedCell&) = delete;
  ~LoadedCell() { reset_words(strategy_, words.data()); }

  std::array<Word, 4> words{};
  bool ahead = false;

 private:
  Strategy strategy_;
};

Carried written(const CompiledLimit& limit, const LoadedCell& cell, Nanos now) {
  const Nanos idle{cell.words[0]};
  if (idle < now) return {};
  Carried carried;
  std::string& raw = carried.raw;
  // Kept twice as long as needed and a second, as the scripts do.
  const Nanos dies = idle + (idle - now) + std::chrono::seconds{1};
  carried.keep_ms = (dies - now) / std::chrono::milliseconds{1} + 1;
  raw += static_cast<char>(kind_byte(limit.strategy) | (cell.ahead ? kAhead : 0));
  put_bytes(shape_of(limit), 4, raw);
  const Word* w = cell.words.data();
  if (limit.strategy != Strategy::kSlidingWindow) put_micros(dies, raw);
  switch (limit.strategy) {
    case Strategy::kSlidingWindow: put_log(limit, w, cell.ahead, dies, raw); break;
    case Strategy::kFixedWindow:
    case Strategy::kQuota:
      put_micros(limit.numbers.window.span_at(Nanos{w[0]} - Nanos{1}).start, raw);
      put_micros(Nanos{w[0]}, raw);
      put_number(w[1], raw);
      break;
    case Strategy::kSlidingWindowCounter:
      put_micros(Nanos{w[1]}, raw);
      put_number(w[2], raw);
      put_number(w[3], raw);
      break;
    default:
      put_micros(Nanos{w[0]}, raw);
      put_number(w[0] % 1000 * den_of(limit) + (limit.strategy == Strategy::kGcra ? 0 : w[1]), raw);
  }
  return carried;
}

}  // namespace

void load_words(const CompiledLimit& limit, std::string_view raw, Word* w, bool& ahead) noexcept {
  assert(limit.strategy != Strategy::kSlidingWindow && limit.strategy != Strategy::kConcurrency);
  assert(raw.size() == told_of(limit.strategy));
  ahead = (static_cast<unsigned char>(raw[0]) & kAhead) != 0;
  switch (limit.strategy) {
    case Strategy::kFixedWindow:
    case Strategy::kQuota:
      w[0] = get_micros(raw, 21).count();
      w[1] = get_number(raw, 29);
      return;
    case Strategy::kSlidingWindowCounter:
      w[1] = get_micros(raw, 13).count();
      w[2] = get_number(raw, 21);
      w[3] = get_number(raw, 29);
      w[0] = w[1] + 2 * limit.numbers.counter.window.count();
      return;
    default: {
      const std::int64_t den = den_of(limit);
      Nanos full_at = get_micros(raw, 13);
      std::int64_t part = get_number(raw, 21);
      if (part >= 1000 * den) {  // written by other numbers
        full_at += std::chrono::microseconds{1};
        part = 0;
      }
      w[0] = full_at.count() + part / den;
      w[1] = part % den;
    }
  }
}

std::optional<std::uint32_t> shape_in(Strategy strategy, std::string_view raw) noexcept {
  const bool log = strategy == Strategy::kSlidingWindow;
  if (log ? raw.size() < kLogHead : raw.size() != told_of(strategy)) return std::nullopt;
  if ((static_cast<unsigned char>(raw[0]) & 15U) != kind_byte(strategy)) return std::nullopt;
  return static_cast<std::uint32_t>(get_bytes(raw, 1, 4));
}

std::optional<Carried> carry_cell(const LiveLimit& live, std::uint32_t from, std::uint32_t to, std::string_view raw,
                                  Nanos now) {
  assert(shape_in(live.strategy(), raw).has_value());
  assert(live.remembers(from) && live.remembers(to));
  LoadedCell cell(live.strategy());
  const auto numbers = [&live](std::uint32_t generation) { return as_counted(live.entry(generation).limit); };
  const CompiledLimit first = numbers(from);
  if (live.strategy() != Strategy::kSlidingWindow) {
    load_words(first, raw, cell.words.data(), cell.ahead);
  } else if (!load_log_words(first, raw, cell.words.data(), cell.ahead)) {
    return std::nullopt;
  }
  // What is idle is forgotten, since its key might as well have expired.
  if (Nanos{cell.words[0]} < now) return Carried{};
  bool fractions = true;
  for (std::uint32_t g = from + 1; g <= to; ++g) {
    fractions = fractions && live.entry(g).carried == OnChange::kKeepFraction;
  }
  // A fraction that slept through several changes is carried over at once: each step on its own would round it up.
  if (fractions) {
    carry_over(first, numbers(to), OnChange::kKeepFraction, cell.words.data(), cell.ahead, now);
  } else {
    for (std::uint32_t g = from + 1; g <= to; ++g) {
      carry_over(numbers(g - 1), numbers(g), live.entry(g).carried, cell.words.data(), cell.ahead, now);
    }
  }
  return written(numbers(to), cell, now);
}

}  // namespace headgate::store::redis

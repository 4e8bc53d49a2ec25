// What store tests share: limits of any size for any strategy, a cell on its own as the oracle for a store, and a
// folder that goes away.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "store/charge.h"
#include "store/memory/memory_store.h"
#include "support/limiters.h"

namespace headgate {

// For rapidcheck's counterexamples.
inline void showValue(OnChange how, std::ostream& out) { out << "OnChange " << static_cast<int>(how); }

}  // namespace headgate

namespace headgate::test {

// How much in how long. A quota's period is an hour whatever `window` says.
struct Size {
  Units limit = 10;
  Nanos window = 10s;
  Units burst = 0;
};

inline void showValue(const Size& size, std::ostream& out) {
  out << size.limit << " per " << size.window.count() << "ns, burst " << size.burst;
}

inline std::string name_of(std::size_t key) { return "key-" + std::to_string(key); }

inline Limit limit_of(Strategy strategy, const Size& size) {
  const Window window{size.limit, size.window, size.burst};
  switch (strategy) {
    case Strategy::kTokenBucket: return must(Limit::token_bucket({size.limit, {size.limit, size.window}, size.burst}));
    case Strategy::kGcra: return must(Limit::gcra({size.limit - 1, size.limit, size.window, size.burst}));
    case Strategy::kSlidingWindow: return must(Limit::sliding_window(window));
    case Strategy::kSlidingWindowCounter: return must(Limit::sliding_window_counter(window));
    case Strategy::kFixedWindow: return must(Limit::fixed_window(window));
    case Strategy::kLeakyBucket: return must(Limit::leaky_bucket({{size.limit, size.window}, size.limit - 1}));
    case Strategy::kConcurrency: return must(Limit::concurrency({size.limit, size.window, size.burst}));
    case Strategy::kQuota: return must(Limit::quota({size.limit, Period::kHour, "UTC", size.burst}));
  }
  throw std::logic_error("no such strategy");
}

// The longest time that any of the limits above needs to be whole again, from any instant on.
inline Nanos whole_again(const Size& size) { return 2 * std::max<Nanos>(size.window, 1h) + 1ns; }

inline LeaseId next_lease() {
  static std::atomic<LeaseId> last{0};
  return ++last;
}

// A cell with nothing around it: no table, no sweeping, no generations.
class BareCell {
 public:
  explicit BareCell(Strategy strategy) : strategy_(strategy) {}
  BareCell(const BareCell& other) : strategy_(other.strategy_), words_(other.words_), ahead_(other.ahead_) {
    if (strategy_ == Strategy::kSlidingWindow) {
      words_ = {};
      const core::RunLog from = store::load_log(other.words_.data(), ahead_, Nanos{0});
      core::RunLog to;
      to.ahead = ahead_;
      to.gone = from.gone;
      if (!store::grow_log(to, from.size + 1)) throw std::bad_alloc();
      to.size = from.size;
      for (std::uint32_t i = 0; i < from.size; ++i) to.set_run(i, from.run(i));
      store::store_log(to, Nanos{0}, words_.data(), ahead_);
      words_[0] = other.words_[0];
    } else if (strategy_ == Strategy::kConcurrency && other.words_[1] != 0) {
      words_[1] = 0;
      const core::HoldTable& from = *store::hold_table(other.words_.data());
      if (!store::grow_holds(words_.data(), from.size + 1)) throw std::bad_alloc();
      core::HoldTable& to = *store::hold_table(words_.data());
      for (std::uint32_t i = 0; i < from.size; ++i) core::concurrency_charge(to, from.holds[i]);
    }
  }
  BareCell& operator=(BareCell other) noexcept {
    std::swap(strategy_, other.strategy_);
    std::swap(words_, other.words_);
    std::swap(ahead_, other.ahead_);
    return *this;
  }
  ~BareCell() { store::reset_words(strategy_, words_.data()); }

  [[nodiscard]] core::Outcome judge(const core::CompiledLimit& limit, Units cost, Nanos now) const {
    core::Outcome outcome = store::judge(limit, words_.data(), ahead_, cost, now);
    outcome.limit = limit.limit;
    return outcome;
  }
  // Takes the cost if it fits.
  bool take(const core::CompiledLimit& limit, Units cost, Nanos now, LeaseId lease = next_lease()) {
    if (cost > limit.most || !judge(limit, cost, now).fits()) return false;
    return cost == 0 || store::charge(limit, words_.data(), ahead_, cost, now, false, lease);
  }
  // Takes the cost at the instant at which it fits, and returns that instant.
  Nanos reserve(const core::CompiledLimit& limit, Units cost, Nanos now) {
    const Nanos wait = judge(limit, cost, now).wait;
    if (!store::charge(limit, words_.data(), ahead_, cost, now + wait, wait > Nanos{0}, next_lease())) {
      throw std::bad_alloc();
    }
    return now + wait;
  }
  void refund(const core::CompiledLimit& limit, Units units, Nanos charged_at, Nanos now) {
    store::refund(limit, words_.data(), ahead_, units, charged_at, now);
  }
  void carry_over(const core::CompiledLimit& from, const core::CompiledLimit& to, OnChange how, Nanos now) {
    store::carry_over(from, to, how, words_.data(), ahead_, now);
  }
  [[nodiscard]] Nanos idle_at() const { return Nanos{words_[0]}; }
  [[nodiscard]] const std::array<store::Word, 4>& words() const { return words_; }
  [[nodiscard]] std::array<store::Word, 4>& words() { return words_; }
  [[nodiscard]] bool ahead() const { return ahead_; }

 private:
  Strategy strategy_;
  std::array<store::Word, 4> words_{};
  bool ahead_ = false;
};

inline bool same(const core::Outcome& a, const core::Outcome& b) {
  return a.wait == b.wait && a.delay == b.delay && a.reset_after == b.reset_after && a.limit == b.limit &&
         a.remaining == b.remaining && a.burst == b.burst;
}

// One charge at one instant, without the ceremony.
inline store::Applied apply(store::MemoryStore& store, const store::Charge& charge, store::Ask ask) {
  core::Outcome outcome;
  return store.apply({&charge, 1}, ask, {&outcome, 1});
}
inline bool take(store::MemoryStore& store, const store::LiveLimit& live, std::string_view key, Units cost, Nanos now) {
  const store::Charge charge{store.hash(key), &live, cost, key, true};
  const store::Applied applied = apply(store, charge, {now, now, store::Effect::kCharge, Nanos{0}, next_lease()});
  return applied.wait == Nanos{0} && !applied.store_full;
}
inline core::Outcome look(store::MemoryStore& store, const store::LiveLimit& live, std::string_view key, Units cost,
                          Nanos now) {
  const store::Charge charge{store.hash(key), &live, cost, key, true};
  core::Outcome outcome;
  store.apply({&charge, 1}, {now, now, store::Effect::kNone, Nanos{0}, 0}, {&outcome, 1});
  return outcome;
}

// An empty folder, gone with all that is in it when the test is over.
class TempFolder {
 public:
  TempFolder() {
    // In memory where that is possible: tests write a great many files.
    std::error_code ignored;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", ignored) && ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path where = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (where / "headgate-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace headgate::test

// The snapshot file, all integers little endian:
//
//   "HGCELLS\n"  u32 version (4)  u32 zero  u64 seed  i64 now  u64 meta length  meta  u64 shards
//   per shard: u64 cells; per cell: u64 low, u64 high (see Tag), and by strategy
//     sliding_window: i64 idle at, i64 units gone, u64 runs, per run i64 at, i64 total
//     concurrency:    i64 idle at, u64 holds, per hold u64 lease, i64 expires at, i64 units
//     the others:     their words
//   XXH3-128 of all that, 16 bytes
//
// It is written beside its place, synced, and renamed over it, so a reader finds the old file or the new one, whole.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#include "store/memory/memory_store.h"

namespace headgate::store {
namespace {

static_assert(std::endian::native == std::endian::little);

using core::Hold;
using core::HoldTable;
using core::Run;
using core::RunLog;

constexpr std::string_view kMagic = "HGCELLS\n";
constexpr std::uint32_t kVersion = 4;  // 1 and 2: keys were hashed otherwise; 3: cells had no owner
constexpr std::size_t kChecksumSize = 16;
constexpr std::size_t kLeastSize = 64;  // of the header and the sum: an empty store's file without meta data
constexpr std::uint64_t kMaxMeta = 1 << 20;

// No cell holds a later instant: a reservation, the time to refill, and the end of a window after that.
constexpr Word kLatest = (kMaxTime + 3 * core::kLongestSpan).count();
// No running total of a sliding window is larger.
constexpr Units kMostTotal = 2 * core::kMaxLogged;
// A wall clock set back by no more than this was corrected; by more, the one that wrote the file was wrong.
constexpr Nanos kCorrection = std::chrono::hours{24};

Error io_error(const std::string& path, const char* what) {
  return {ErrorCode::kIo, path + ": " + what + ": " + std::strerror(errno), true};
}
Error corrupt(const std::string& path, const std::string& what) {
  return {ErrorCode::kCorrupt, path + ": not a usable snapshot: " + what};
}

// Sums and writes as it goes.
class Writer {
 public:
  explicit Writer(int file) : file_(file), state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Writer() { XXH3_freeState(state_); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  void put_bytes(std::string_view bytes) { buffer_.append(bytes); }
  // Writes out what has come together, if it is much. Not to be called under a lock.
  void breathe() {
    if (buffer_.size() >= (std::size_t{1} << 20)) flush();
  }
  // False: a write failed; errno says why.
  [[nodiscard]] bool finish() {
    flush();
    const XXH128_hash_t sum = XXH3_128bits_digest(state_);
    put(sum.low64);
    put(sum.high64);
    flush();
    return ok_;
  }

 private:
  void flush() {
    XXH3_128bits_update(state_, buffer_.data(), buffer_.size());
    for (std::size_t done = 0; ok_ && done < buffer_.size();) {
      const ssize_t written = ::write(file_, buffer_.data() + done, buffer_.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) ok_ = false;
      done += written > 0 ? static_cast<std::size_t>(written) : 0;
    }
    buffer_.clear();
  }

  int file_;
  XXH3_state_t* state_;
  std::string buffer_;
  bool ok_ = true;
};

// Never reads past the end; what is asked for beyond it fails the whole.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  [[nodiscard]] T get() {
    T value{};
    const std::string_view bytes = get_bytes(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  [[nodiscard]] std::string_view get_bytes(std::uint64_t size) {
    if (size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  void fail() { ok_ = false; }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void put_cell(Writer& out, const auto& cell) {
  out.put(cell.low);
  out.put(cell.high);
  const Strategy strategy = Tag::strategy(cell.high);
  if (strategy == Strategy::kSlidingWindow) {
    // The window is not needed to walk the runs.
    const RunLog log = load_log(cell.words, (cell.high & Tag::kAhead) != 0, Nanos{0});
    out.put(cell.words[0]);
    out.put(log.gone);
    out.put(std::uint64_t{log.size});
    for (std::uint32_t i = 0; i < log.size; ++i) out.put(log.run(i));
  } else if (strategy == Strategy::kConcurrency) {
    const HoldTable* table = hold_table(cell.words);
    const std::uint64_t size = table == nullptr ? 0 : table->size;
    out.put(cell.words[0]);
    out.put(size);
    for (std::uint64_t i = 0; i < size; ++i) out.put(table->holds[i]);
  } else {
    out.put(cell.words);
  }
}

// One cell as it stands in the file, with instants moved back by `shift`.
struct SavedCell {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::array<Word, 4> words{};
  Word gone = 0;
  std::vector<Run> runs;
  std::vector<Hold> holds;
};

Word get_between(Reader& in, Word least, Word most) {
  const Word word = in.get<Word>();
  if (word >= least && word <= most) return word;
  in.fail();
  return least;
}

Word get_instant(Reader& in, Nanos shift) {
  const Word instant = get_between(in, 0, kLatest);
  return instant > shift.count() ? instant - shift.count() : 0;
}

void get_runs(Reader& in, SavedCell& cell, Nanos shift) {
  cell.gone = get_between(in, 0, kMostTotal);
  const auto size = in.get<std::uint64_t>();
  if (size > core::kMaxRuns) in.fail();
  cell.runs.clear();
  for (std::uint64_t i = 0; i < size && in.ok(); ++i) {
    const Run before = cell.runs.empty() ? Run{Nanos{0}, cell.gone} : cell.runs.back();
    const Run run{Nanos{get_instant(in, shift)}, get_between(in, before.total, kMostTotal)};
    if (run.at < before.at || run.at.count() > cell.words[0]) in.fail();
    cell.runs.push_back(run);
  }
  if ((cell.high & Tag::kAhead) != 0 && cell.runs.empty()) in.fail();
}

void get_holds(Reader& in, SavedCell& cell, Nanos shift) {
  const auto size = in.get<std::uint64_t>();
  Units held = 0;
  cell.holds.clear();
  for (std::uint64_t i = 0; i < size && in.ok(); ++i) {
    Hold hold;
    hold.lease = in.get<LeaseId>();
    hold.expires_at = Nanos{get_instant(in, shift)};
    hold.units = get_between(in, 1, core::kMaxHolds);
    held += hold.units;
    if (held > core::kMaxHolds || hold.expires_at.count() > cell.words[0]) in.fail();
    cell.holds.push_back(hold);
  }
}

void get_counter(Reader& in, SavedCell& cell, Nanos shift) {
  const Word idle_at = get_between(in, 0, kLatest);
  Word start = get_between(in, 0, idle_at);
  const Word window = (idle_at - start) / 2;
  // Windows begin at multiples of their length. Moved back, it begins at the next one: what was used counts longer
  // rather than shorter.
  if (shift > Nanos{0} && window > 0) {
    start = start > shift.count() ? (start - shift.count() + window - 1) / window * window : 0;
  }
  cell.words = {start + 2 * window, start, get_between(in, 0, kMostCounted), get_between(in, 0, kMostCounted)};
}

void get_cell(Reader& in, SavedCell& cell, Nanos shift) {
  cell.low = in.get<std::uint64_t>();
  cell.high = in.get<std::uint64_t>();
  cell.words = {};
  if ((cell.high & Tag::kOccupied) == 0) in.fail();
  switch (Tag::strategy(cell.high)) {
    case Strategy::kSlidingWindow:
      cell.words[0] = get_instant(in, shift);
      get_runs(in, cell, shift);
      break;
    case Strategy::kConcurrency:
      cell.words[0] = get_instant(in, shift);
      get_holds(in, cell, shift);
      break;
    case Strategy::kSlidingWindowCounter: get_counter(in, cell, shift); break;
    case Strategy::kFixedWindow:
    case Strategy::kQuota:
      // As while running, a window already begun stays the current one until its own end.
      cell.words[0] = get_instant(in, shift > kCorrection ? shift : Nanos{0});
      cell.words[1] = get_between(in, 0, kMostCounted);
      break;
    case Strategy::kTokenBucket:
    case Strategy::kGcra:
    case Strategy::kLeakyBucket:
      cell.words[0] = get_instant(in, shift);
      cell.words[1] = get_between(in, 0, kMostCounted);
      break;
  }
}

// Puts what the words own behind them. False: no memory.
bool fill(const SavedCell& cell, Word* words) {
  const Strategy strategy = Tag::strategy(cell.high);
  for (int i = 0; i < words_of(strategy); ++i) words[i] = cell.words[static_cast<std::size_t>(i)];
  if (strategy == Strategy::kSlidingWindow) {
    RunLog log;
    log.gone = cell.gone;
    const auto size = static_cast<std::uint32_t>(cell.runs.size());
    // A run that was carried over to a smaller limit may be of no unit, and another make up for it.
    Units before = cell.gone;
    const bool units_only = size > 0 && std::all_of(cell.runs.begin(), cell.runs.end(),
                                                    [&](const Run& run) { return run.total == ++before; });
    if (!(units_only ? grow_instants(log, size) : grow_log(log, size))) return false;
    log.size = size;
    for (std::uint32_t i = 0; i < size; ++i) log.set_run(i, cell.runs[i]);
    bool ahead = false;
    store_log(log, Nanos{0}, words, ahead);
    words[0] = cell.words[0];
  } else if (strategy == Strategy::kConcurrency && !cell.holds.empty()) {
    if (!grow_holds(words, static_cast<std::uint32_t>(cell.holds.size()))) return false;
    for (const Hold& hold : cell.holds) core::concurrency_charge(*hold_table(words), hold);
  }
  return true;
}

// The whole file. What is no file of ours is not read further than its first bytes.
Result<std::string> read_all(const std::string& path) {
  struct File {
    int descriptor;
    ~File() { ::close(descriptor); }
  };
  // Not to hang on a pipe.
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.descriptor < 0) return io_error(path, "cannot be read");
  struct stat about {};
  if (::fstat(file.descriptor, &about) != 0) return io_error(path, "cannot be read");
  if (!S_ISREG(about.st_mode)) return Error{ErrorCode::kIo, path + ": cannot be read: it must be a regular file"};

  std::string bytes;
  const auto read_up_to = [&](std::size_t size) {
    std::size_t done = bytes.size();
    bytes.resize(size);
    while (done < size) {
      const ssize_t got = ::read(file.descriptor, bytes.data() + done, size - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return false;
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    bytes.resize(done);
    return true;
  };
  try {
    const auto size = static_cast<std::size_t>(about.st_size);
    if (!read_up_to(std::min(size, kMagic.size()))) return io_error(path, "cannot be read");
    if (!kMagic.starts_with(bytes)) return corrupt(path, "it was written by something else");
    if (!read_up_to(std::max(size, bytes.size()))) return io_error(path, "cannot be read");
  } catch (const std::exception&) {
    return Error{ErrorCode::kIo,
                 path + ": cannot be read: there is no memory for its " + std::to_string(about.st_size) + " bytes",
                 true};
  }
  if (bytes.size() < kLeastSize) {
    return corrupt(
        path, "it must be at least " + std::to_string(kLeastSize) + " bytes long, got " + std::to_string(bytes.size()));
  }
  return bytes;
}

bool sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool ok = ::fsync(file) == 0;
  ::close(file);
  return ok;
}

}  // namespace

Result<void> MemoryStore::save(const std::string& path, std::string_view meta, Nanos now) const {
  // Two at a time would write into one another's file.
  static std::mutex one_at_a_time;
  const std::lock_guard alone(one_at_a_time);
  const std::string beside = path + ".new";
  // A file that a crash or another program has left there is not written into.
  ::unlink(beside.c_str());
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return io_error(beside, "cannot be written");
  const auto give_up = [&](const char* what) {
    Error error = io_error(beside, what);
    ::unlink(beside.c_str());
    return error;
  };

  Writer out(file);
  out.put_bytes(kMagic);
  out.put(kVersion);
  out.put(std::uint32_t{0});
  out.put(hasher_.seed());
  out.put(static_cast<std::int64_t>(now.count()));
  out.put(std::uint64_t{meta.size()});
  out.put_bytes(meta);
  out.put(std::uint64_t{shard_mask_ + 1});
  for (std::size_t i = 0; i <= shard_mask_; ++i) {
    const Shard& shard = shards_[i];
    {
      const std::lock_guard guard(shard.lock);
      out.put(std::uint64_t{shard.small.size()} + shard.large.size());
      shard.small.for_each([&](const auto& cell) { put_cell(out, cell); });
      shard.large.for_each([&](const auto& cell) { put_cell(out, cell); });
    }
    out.breathe();
  }
  const bool written = out.finish() && ::fsync(file) == 0;
  const int write_errno = errno;
  ::close(file);
  errno = write_errno;
  if (!written) return give_up("cannot be written");
  if (::rename(beside.c_str(), path.c_str()) != 0) return give_up("cannot be put in place");
  if (!sync_folder_of(path)) return io_error(path, "cannot be synced");
  return {};
}

Result<std::size_t> MemoryStore::restore(const std::string& path, Nanos now, const AcceptMeta& accept) {
  if (cells_.load() != 0) {
    return Error{ErrorCode::kInvalidArgument, path + ": a snapshot must be restored before any key is seen"};
  }
  auto read = read_all(path);
  if (!read) return std::move(read).error();
  const std::string& bytes = *read;
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - kChecksumSize);
  Reader header(body.substr(kMagic.size()));
  const auto version = header.get<std::uint32_t>();
  if (version != kVersion) {
    return corrupt(path, "its version must be " + std::to_string(kVersion) + ", got " + std::to_string(version));
  }
  const XXH128_hash_t sum = XXH3_128bits(body.data(), body.size());
  Reader tail(std::string_view(bytes).substr(body.size()));
  if (tail.get<std::uint64_t>() != sum.low64 || tail.get<std::uint64_t>() != sum.high64) {
    return corrupt(path, "its checksum does not match: it is torn or was altered");
  }
  (void)header.get<std::uint32_t>();
  const auto seed = header.get<std::uint64_t>();
  const Nanos saved_at{header.get<std::int64_t>()};
  const auto meta_size = header.get<std::uint64_t>();
  const std::string_view meta = header.get_bytes(std::min(meta_size, kMaxMeta + 1));
  const auto shards = header.get<std::uint64_t>();
  if (!header.ok() || meta_size > kMaxMeta || saved_at < Nanos{0} || saved_at > kMaxTime) {
    return corrupt(path, "its header makes no sense");
  }

  // If the clock has been set back meanwhile, the cells must not wait for it to catch up.
  const Nanos shift = std::max(saved_at - now, Nanos{0});
  const auto walk = [&](Reader in, auto visit) {
    SavedCell cell;
    for (std::uint64_t shard = 0; shard < shards && in.ok(); ++shard) {
      const auto cells = in.get<std::uint64_t>();
      for (std::uint64_t i = 0; i < cells && in.ok(); ++i) {
        get_cell(in, cell, shift);
        if (in.ok()) visit(cell);
      }
    }
    return in.ok() && in.at_end();
  };
  // How many will come to each of our shards. The cells of the file are in the order of their hashes: a table that grew
  // as they come would be filled from one end, its probes would be long, and it would be rebuilt again and again.
  struct Expected {
    std::uint64_t small = 0;
    std::uint64_t large = 0;
  };
  std::vector<Expected> expected(shard_mask_ + 1);
  const bool sound = walk(header, [&](const SavedCell& cell) {
    if (cell.words[0] < now.count()) return;  // idle by now
    Expected& shard = expected[cell.low & shard_mask_];
    ++(words_of(Tag::strategy(cell.high)) == 2 ? shard.small : shard.large);
  });
  if (!sound) return corrupt(path, "its cells make no sense");
  if (auto accepted = accept(meta); !accepted) {
    return Error{accepted.error().code, path + ": " + accepted.error().message};
  }

  hasher_ = base::Hasher(seed);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::lock_guard guard(shards_[i].lock);
    shards_[i].small.reserve(std::min<std::uint64_t>(expected[i].small, max_cells_));
    shards_[i].large.reserve(std::min<std::uint64_t>(expected[i].large, max_cells_));
  }
  walk(header, [&](const SavedCell& cell) {
    if (cell.words[0] < now.count()) return;
    Shard& shard = shards_[cell.low & shard_mask_];
    const std::lock_guard guard(shard.lock);
    const Strategy strategy = Tag::strategy(cell.high);
    if (find(shard, {cell.low, cell.high}, strategy).words != nullptr) return;
    const Place place = place_new(shard, cell.low, cell.high, now);
    if (place.words != nullptr && !fill(cell, place.words)) reset_words(strategy, place.words);
  });
  return cells_.load();
}

}  // namespace headgate::store

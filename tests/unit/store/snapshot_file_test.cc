// The snapshot as a file: whole or refused, with a message that says why, and never a crash.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "store/memory/memory_store.h"
#include "support/cells.h"
#include "support/snapshot_file.h"

namespace headgate::test {
namespace {

using core::compile;
using store::LiveLimit;
using store::MemoryStore;

Result<void> accept_all(std::string_view) { return {}; }

// One key under every strategy, half used.
class SnapshotFile : public testing::Test {
 protected:
  SnapshotFile() {
    for (const Strategy strategy : all_strategies()) {
      lives_.push_back(std::make_unique<LiveLimit>(compile(limit_of(strategy, {}))));
      if (!take(store_, *lives_.back(), "key", 5, kStart)) throw std::logic_error("it must fit");
    }
  }
  [[nodiscard]] std::string saved() const {
    const auto done = store_.save(path_, "meta", kStart);
    if (!done) throw std::runtime_error(done.error().message);
    return read_bytes(path_);
  }
  // The message with which a file of these bytes is refused; it must leave the store empty and usable.
  [[nodiscard]] std::string refusal(std::string_view bytes) const {
    write_bytes(path_, bytes);
    return refusal();
  }
  [[nodiscard]] std::string refusal() const {
    MemoryStore store({.max_cells = 100, .seed = 9});
    const auto restored = store.restore(path_, kStart, accept_all);
    if (restored) return "accepted";
    EXPECT_EQ(store.totals().cells, 0U);
    EXPECT_TRUE(take(store, *lives_[0], "key", 10, kStart));
    return restored.error().message;
  }
  [[nodiscard]] std::string unusable(const std::string& why) const { return path_ + ": not a usable snapshot: " + why; }

  TempFolder folder_;
  std::string path_ = folder_.file("cells");
  std::vector<std::unique_ptr<LiveLimit>> lives_;
  MemoryStore store_{{.max_cells = 100, .seed = 7}};
};

TEST_F(SnapshotFile, BringsEveryCellBack) {
  (void)saved();
  MemoryStore restored({.max_cells = 100, .seed = 9});
  std::string meta;
  const auto count = restored.restore(path_, kStart, [&](std::string_view text) {
    meta = text;
    return Result<void>();
  });
  ASSERT_TRUE(count) << count.error().message;
  EXPECT_EQ(*count, 8U);
  EXPECT_EQ(meta, "meta");
  EXPECT_EQ(restored.totals().cells, 8U);
  for (const auto& live : lives_) {
    for (const Units cost : {0, 1, 6}) {
      EXPECT_TRUE(same(look(restored, *live, "key", cost, kStart + 1s), look(store_, *live, "key", cost, kStart + 1s)))
          << to_string(live->strategy());
    }
  }
}

TEST_F(SnapshotFile, OfAnEmptyStoreIsAsShortAsAFileCanBe) {
  const MemoryStore empty({.max_cells = 100, .seed = 7});
  ASSERT_TRUE(empty.save(path_, "", kStart));
  EXPECT_EQ(read_bytes(path_).size(), 64U + 8U);  // the header, one shard, the sum
  MemoryStore restored({.max_cells = 100, .seed = 9});
  const auto count = restored.restore(path_, kStart, accept_all);
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 0U);
}

TEST_F(SnapshotFile, IsForItsOwnerOnlyAndLeavesNothingBeside) {
  const mode_t mask = ::umask(0);
  (void)saved();
  ::umask(mask);
  struct stat about {};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(SnapshotFile, CutOffAnywhereIsRefused) {
  const std::string whole = saved();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string message = refusal(whole.substr(0, size));
    if (size < 64) {
      ASSERT_EQ(message, unusable("it must be at least 64 bytes long, got " + std::to_string(size)));
    } else {
      ASSERT_EQ(message, unusable("its checksum does not match: it is torn or was altered")) << size;
    }
  }
}

TEST_F(SnapshotFile, WithAnyByteAlteredIsRefused) {
  // Small, so that every other value of every byte can be tried.
  MemoryStore small({.max_cells = 100, .seed = 7});
  ASSERT_TRUE(take(small, *lives_[0], "key", 5, kStart));
  ASSERT_TRUE(take(small, *lives_[static_cast<std::size_t>(Strategy::kSlidingWindow)], "key", 5, kStart));
  ASSERT_TRUE(small.save(path_, "m", kStart));
  const std::string whole = read_bytes(path_);
  ASSERT_LT(whole.size(), 200U);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ change);
      write_bytes(path_, altered);
      MemoryStore store({.max_cells = 100, .seed = 9});
      const auto restored = store.restore(path_, kStart, accept_all);
      ASSERT_FALSE(restored) << "byte " << at << " changed by " << change;
      ASSERT_EQ(store.totals().cells, 0U);
      ASSERT_EQ(restored.error().code, ErrorCode::kCorrupt);
      const std::string& message = restored.error().message;
      if (at < 8) {
        ASSERT_EQ(message, unusable("it was written by something else"));
      } else if (at < 12) {
        ASSERT_TRUE(message.starts_with(unusable("its version must be 4, got "))) << message;
      } else {
        ASSERT_EQ(message, unusable("its checksum does not match: it is torn or was altered"));
      }
    }
  }
}

TEST_F(SnapshotFile, OfSomethingElseIsRefused) {
  EXPECT_EQ(refusal(""), unusable("it must be at least 64 bytes long, got 0"));
  EXPECT_EQ(refusal("hello"), unusable("it was written by something else"));
  EXPECT_EQ(refusal(std::string(100'000, 'x')), unusable("it was written by something else"));
  EXPECT_EQ(refusal(std::string(100'000, '\0')), unusable("it was written by something else"));
  EXPECT_EQ(refusal(saved() + "more"), unusable("its checksum does not match: it is torn or was altered"));
}

TEST_F(SnapshotFile, OfAnotherVersionIsRefusedByName) {
  std::string bytes = saved();
  bytes[8] = 1;
  EXPECT_EQ(refusal(sign(bytes)), unusable("its version must be 4, got 1"));
}

TEST_F(SnapshotFile, ThatIsMissingIsNotRead) {
  EXPECT_EQ(refusal(), path_ + ": cannot be read: No such file or directory");
}

TEST_F(SnapshotFile, ThatIsNoFileIsNotRead) {
  std::filesystem::create_directory(path_);
  EXPECT_EQ(refusal(), path_ + ": cannot be read: it must be a regular file");
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), path_ + ": cannot be read: it must be a regular file") << "and nobody waits for a writer";
}

TEST_F(SnapshotFile, IsOnlyForAnEmptyStore) {
  (void)saved();
  const auto restored = store_.restore(path_, kStart, accept_all);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().message, path_ + ": a snapshot must be restored before any key is seen");
  EXPECT_EQ(store_.totals().cells, 8U);
}

TEST_F(SnapshotFile, ThatTheCallerRefusesChangesNothing) {
  (void)saved();
  MemoryStore store({.max_cells = 100, .seed = 9});
  const auto restored = store.restore(path_, kStart, [](std::string_view) -> Result<void> {
    return Error{ErrorCode::kInvalidArgument, "not mine"};
  });
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().message, path_ + ": not mine");
  EXPECT_EQ(store.totals().cells, 0U);
  EXPECT_EQ(store.hash("key"), MemoryStore({.seed = 9}).hash("key")) << "the seed is still its own";
}

// --- Saving that fails
// -------------------------------------------------------------------------------------------------

TEST_F(SnapshotFile, CannotBeSavedWhereThereIsNoFolder) {
  const std::string path = folder_.file("missing/cells");
  const auto done = store_.save(path, "", kStart);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kIo);
  EXPECT_EQ(done.error().message, path + ".new: cannot be written: No such file or directory");
}

TEST_F(SnapshotFile, CannotBeSavedInAFolderThatCannotBeWritten) {
  // Not even root can make a file there.
  const auto done = store_.save("/proc/cells", "", kStart);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kIo);
  EXPECT_TRUE(done.error().message.starts_with("/proc/cells.new: cannot be written: ")) << done.error().message;
}

TEST_F(SnapshotFile, CannotTakeTheNameOfAFolder) {
  std::filesystem::create_directory(path_);
  const auto done = store_.save(path_, "", kStart);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, path_ + ".new: cannot be put in place: Is a directory");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(SnapshotFile, ThatCannotBeWrittenWholeLeavesTheOldOneInPlace) {
  const std::string before = saved();
  for (int key = 0; key < 100; ++key) (void)take(store_, *lives_[0], "key-" + std::to_string(key), 5, kStart);

  // As when the disk is full, half way through.
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit small_files = old_limit;
  small_files.rlim_cur = 1000;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small_files), 0);
  const auto done = store_.save(path_, "", kStart);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);

  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, path_ + ".new: cannot be written: File too large");
  EXPECT_TRUE(done.error().transient);
  EXPECT_EQ(read_bytes(path_), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(SnapshotFile, WritesIntoNothingThatItFindsInItsWay) {
  // A crash, or another program, has left a file or a link where the new one is written.
  const std::string precious = folder_.file("precious");
  write_bytes(precious, "do not touch");
  std::filesystem::create_symlink(precious, path_ + ".new");
  (void)saved();
  EXPECT_EQ(read_bytes(precious), "do not touch");
  write_bytes(path_ + ".new", "half of a file");
  ::chmod((path_ + ".new").c_str(), 0666);
  (void)saved();
  struct stat about {};
  ASSERT_EQ(::lstat(path_.c_str(), &about), 0);
  EXPECT_TRUE(S_ISREG(about.st_mode));
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
}

// --- Other stores, other times
// -----------------------------------------------------------------------------------------

TEST_F(SnapshotFile, FitsAStoreWithAnotherNumberOfShards) {
  MemoryStore large({.max_cells = 1'000'000, .seed = 7});
  for (int key = 0; key < 500; ++key) {
    for (const auto& live : lives_) ASSERT_TRUE(take(large, *live, "key-" + std::to_string(key), 5, kStart));
  }
  ASSERT_TRUE(large.save(path_, "", kStart));
  MemoryStore small({.max_cells = 4000, .seed = 9});
  auto count = small.restore(path_, kStart, accept_all);
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 4000U);
  ASSERT_TRUE(small.save(path_, "", kStart));
  MemoryStore again({.max_cells = 1'000'000, .seed = 11});
  count = again.restore(path_, kStart, accept_all);
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 4000U);
  for (int key = 0; key < 500; ++key) {
    for (const auto& live : lives_) {
      ASSERT_EQ(look(again, *live, "key-" + std::to_string(key), 0, kStart).remaining, 5);
    }
  }
}

TEST_F(SnapshotFile, BringsNoMoreCellsBackThanTheCapAllows) {
  for (int key = 0; key < 50; ++key) ASSERT_TRUE(take(store_, *lives_[0], "key-" + std::to_string(key), 5, kStart));
  (void)saved();
  for (const AtCap at_cap : {AtCap::kRefuseNew, AtCap::kEvictOldest}) {
    MemoryStore small({.max_cells = 20, .at_cap = at_cap, .seed = 9});
    const auto count = small.restore(path_, kStart, accept_all);
    ASSERT_TRUE(count);
    EXPECT_EQ(*count, 20U);
    EXPECT_EQ(small.totals().cells, 20U);
    EXPECT_EQ(small.totals().refused + small.totals().evicted, 38U);
  }
}

TEST_F(SnapshotFile, LeavesOutWhatHasBecomeIdleMeanwhile) {
  (void)saved();
  MemoryStore store({.max_cells = 100, .seed = 9});
  const auto count = store.restore(path_, kStart + 30min, accept_all);
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 1U) << "the hour of the quota is not over";
  MemoryStore later({.max_cells = 100, .seed = 9});
  const auto none = later.restore(path_, kStart + 24h, accept_all);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, 0U);
}

TEST_F(SnapshotFile, ReadWithAClockSetBackNeitherWaitsForItNorGrantsTwice) {
  (void)saved();
  for (const Nanos back : {Nanos{1ms}, Nanos{1s}, Nanos{59min}, Nanos{24h * 400}}) {
    const Nanos now = kStart - back;
    MemoryStore store({.max_cells = 100, .seed = 9});
    const auto count = store.restore(path_, now, accept_all);
    ASSERT_TRUE(count);
    ASSERT_EQ(*count, 8U);
    for (const auto& live : lives_) {
      EXPECT_EQ(look(store, *live, "key", 0, now).remaining, 5) << to_string(live->strategy());
      const bool follows_wall = live->current().follows_wall();
      // A window that a small correction has put ahead stays the current one until its own end, as while running.
      const Nanos whole = follows_wall && back <= 24h ? kStart + 1h : now + 1h;
      EXPECT_EQ(look(store, *live, "key", 0, whole).remaining, 10) << to_string(live->strategy());
    }
  }
}

TEST_F(SnapshotFile, ReadWithAClockSetBackAWindowEndsWhereWindowsEnd) {
  // Otherwise the rest of the hour would have a window, and a limit, of its own.
  (void)saved();
  MemoryStore store({.max_cells = 100, .seed = 9});
  ASSERT_TRUE(store.restore(path_, kStart - 10min, accept_all));
  const LiveLimit& quota = *lives_[static_cast<std::size_t>(Strategy::kQuota)];
  EXPECT_TRUE(take(store, quota, "key", 5, kStart + 49min));
  EXPECT_FALSE(take(store, quota, "key", 1, kStart + 59min));
  EXPECT_TRUE(take(store, quota, "key", 10, kStart + 60min));
}

TEST_F(SnapshotFile, ReadWithAClockSetBackACounterRemembersTheWindowBefore) {
  const LiveLimit& live = *lives_[static_cast<std::size_t>(Strategy::kSlidingWindowCounter)];
  ASSERT_TRUE(take(store_, live, "key", 5, kStart));
  (void)saved();
  MemoryStore store({.max_cells = 100, .seed = 9});
  const Nanos now = kStart - 3s;
  ASSERT_TRUE(store.restore(path_, now, accept_all));
  Units admitted = 0;
  for (int i = 0; i < 110; ++i) admitted += take(store, live, "key", 1, now + i * 100ms) ? 1 : 0;
  EXPECT_LE(admitted, 2) << "ten were used a moment ago, and their window is hardly over";
}

// --- A valid sum over nonsense
// -----------------------------------------------------------------------------------------

std::string with_word(std::string bytes, std::size_t at, std::int64_t word) {
  std::memcpy(bytes.data() + at, &word, sizeof(word));
  return sign(bytes);
}

TEST_F(SnapshotFile, WithANonsensicalHeaderIsRefused) {
  const std::string whole = saved();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t word : {std::int64_t{-1}, kLeast, kMost}) {
    EXPECT_EQ(refusal(with_word(whole, 24, word)), unusable("its header makes no sense")) << "saved at " << word;
    EXPECT_EQ(refusal(with_word(whole, 32, word)), unusable("its header makes no sense")) << "meta length " << word;
    EXPECT_EQ(refusal(with_word(whole, 44, word)), unusable("its cells make no sense")) << "shards " << word;
    EXPECT_EQ(refusal(with_word(whole, 52, word)), unusable("its cells make no sense")) << "cells " << word;
  }
  EXPECT_EQ(refusal(with_word(whole, 44, 0)), unusable("its cells make no sense")) << "shards, but no room for them";
}

TEST_F(SnapshotFile, WithTheSameCellTwiceBringsItBackOnce) {
  MemoryStore one({.max_cells = 100, .seed = 7});
  ASSERT_TRUE(take(one, *lives_[0], "key", 5, kStart));
  ASSERT_TRUE(one.save(path_, "", kStart));
  std::string bytes = read_bytes(path_);
  constexpr std::size_t kCells = 48;  // where the number of cells stands without meta data
  const std::string cell = bytes.substr(kCells + 8, 32);
  bytes.insert(kCells + 8, cell);
  write_bytes(path_, with_word(bytes, kCells, 2));
  MemoryStore store({.max_cells = 100, .seed = 9});
  const auto count = store.restore(path_, kStart, accept_all);
  ASSERT_TRUE(count) << count.error().message;
  EXPECT_EQ(*count, 1U);
  store.clear({store.hash("key"), lives_[0].get(), 0, "", true});
  EXPECT_EQ(store.totals().cells, 0U);
  EXPECT_EQ(look(store, *lives_[0], "key", 0, kStart).remaining, 10);
}

// Whatever a file says, a store that has accepted it must work.
void use(MemoryStore& store, const std::vector<std::unique_ptr<LiveLimit>>& lives, const std::string& path) {
  for (const Nanos now : {kStart, kStart + 1s, kStart + 2h, kMaxTime}) {
    for (const auto& live : lives) {
      for (const Units cost : {Units{0}, Units{1}, Units{10}}) {
        const core::Outcome outcome = look(store, *live, "key", cost, now);
        RC_ASSERT(outcome.remaining >= 0);
        RC_ASSERT(outcome.remaining <= 20);
        (void)take(store, *live, "key", cost, now);
      }
      const store::Charge charge{store.hash("key"), live.get(), 3, "", true};
      (void)apply(store, charge, {now, now, store::Effect::kReserve, 10min, next_lease()});
      store.refund(charge, now, now);
      (void)store.release(charge, 1, now);
      (void)store.renew(charge, 1, now);
    }
    RC_ASSERT(static_cast<bool>(store.save(path, "again", now)));
  }
  for (const auto& live : lives) {
    for (const OnChange how : {OnChange::kKeepFraction, OnChange::kKeepUnits, OnChange::kReset}) {
      store.change(*live, compile(limit_of(live->strategy(), {.limit = 20, .window = 3s})), how);
      (void)take(store, *live, "key", 1, kStart);
    }
  }
  store.maintain(1000, kMaxTime);
}

RC_GTEST_FIXTURE_PROP(SnapshotFile, OfNonsenseWithAValidSumNeverDoesHarm, ()) {
  // Reserved ahead too, so that every field has been written.
  for (const auto& live : lives_) {
    const store::Charge charge{store_.hash("key"), live.get(), 8, "", true};
    (void)apply(store_, charge, {kStart, kStart, store::Effect::kReserve, 2h, next_lease()});
  }
  const std::string whole = saved();
  for (int i = 0; i < 10; ++i) {
    write_bytes(path_, mutated(whole, *rc::gen::arbitrary<std::uint64_t>()));
    MemoryStore store({.max_cells = 100, .seed = 9});
    const auto restored =
        store.restore(path_, kStart + Nanos{*rc::gen::inRange(-10'000'000'000, 10'000'000'000)}, accept_all);
    if (restored) {
      RC_ASSERT(store.totals().cells == *restored);
      use(store, lives_, path_);
    } else {
      RC_ASSERT(restored.error().code == ErrorCode::kCorrupt);
      RC_ASSERT(store.totals().cells == 0U);
    }
  }
}

}  // namespace
}  // namespace headgate::test

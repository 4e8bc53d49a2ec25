// Any bytes as a snapshot: it is refused, or the limiter that took it works. The checksum is corrected, since no fuzzer
// would guess it and the code behind it would not be reached.
//
// An input is one byte that chooses the strategy, then a snapshot file without its last sixteen bytes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/cells.h"
#include "support/snapshot_file.h"

namespace headgate::test {
namespace {

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("snapshot", MFD_CLOEXEC)) {
    if (descriptor_ < 0) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  void write(const std::string& bytes) const {
    if (::ftruncate(descriptor_, 0) != 0) std::abort();
    if (::pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void check(bool holds) {
  if (!holds) std::abort();
}

void use(MemoryLimiter& limiter, ManualClock& clock, Strategy strategy) {
  for (const Nanos now : {kStart, kStart + 1s, kStart + 2h, kMaxTime, Nanos{0}}) {
    clock.set(now);
    for (const Units cost : {0, 1, 10, 11}) {
      const Decision looked = limiter.peek("key", cost);
      check(looked.remaining >= 0 && looked.remaining <= looked.limit);
      (void)limiter.try_acquire("key", cost);
    }
    Reservation reservation = limiter.reserve("key", 3, 10min);
    reservation.cancel();
    (void)limiter.release("key", 1);
    (void)limiter.renew("key", 1);
    (void)limiter.statistics("key");
  }
  for (const OnChange how : {OnChange::kKeepFraction, OnChange::kKeepUnits, OnChange::kReset}) {
    check(static_cast<bool>(limiter.set_limit(limit_of(strategy, {.limit = 20, .window = 3s}), how)));
    check(limiter.peek("key").remaining <= 20);
    (void)limiter.try_acquire("key");
  }
  limiter.maintain(1000);
}

}  // namespace
}  // namespace headgate::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headgate;
  using namespace headgate::test;
  if (size < 1) return 0;
  const auto strategy = static_cast<Strategy>(data[0] % kStrategyCount);
  static const MemoryFile file;
  file.write(sign(std::string(reinterpret_cast<const char*>(data) + 1, size - 1) + std::string(kSumSize, '\0')));

  ManualClock clock(kStart);
  const auto limiter = make(Options().limit(limit_of(strategy, {})).clock(clock).max_keys(100).seed(1));
  const auto restored = limiter->restore(file.path());
  check(limiter->totals().cells == (restored ? *restored : 0));
  use(*limiter, clock, strategy);
  return 0;
}

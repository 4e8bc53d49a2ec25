#include "control/sensors.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <string>

#include "support/cells.h"
#include "unit/control/figures.h"

namespace headgate::control {
namespace {

using namespace std::chrono_literals;

// A machine made of files: four CPUs, 1000 MiB of memory.
class SensorsTest : public testing::Test {
 protected:
  SensorsTest() {
    stat(0, 0);
    lay("proc/meminfo", "MemTotal:  1024000 kB\nMemFree: 1 kB\nMemAvailable:   256000 kB\n");
  }
  void lay(const std::string& path, std::string_view text) {
    const std::string whole = folder_.file(path);
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    test::write_bytes(whole, text);
  }
  void stat(int busy, int idle) {
    lay("proc/stat", "cpu " + std::to_string(busy) + " 0 0 " + std::to_string(idle) +
                         " 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nintr 5\n");
  }
  // A cgroup and what it may use.
  void cgroup(const std::string& place) {
    lay("proc/self/cgroup", "0::" + place + "\n");
    lay("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    lay("sys/fs/cgroup" + place + "/cgroup.controllers", "");
  }
  [[nodiscard]] LoadReading sample(Nanos now = kStart) { return sensors_.sample(now); }

  test::TempFolder folder_;
  Sensors sensors_{folder_.path().string()};
};

TEST_F(SensorsTest, CpuIsTheShareOfTicksNotIdleSinceTheLastSample) {
  EXPECT_EQ(sample().cpu, std::nullopt) << "nothing to compare with";
  stat(30, 70);
  EXPECT_NEAR(*sample(kStart + 1s).cpu, 0.3, 1e-12);
  EXPECT_EQ(sample(kStart + 2s).cpu, std::nullopt) << "no tick has passed";
  stat(10, 10);
  EXPECT_EQ(sample(kStart + 3s).cpu, std::nullopt) << "ticks that run backwards say nothing";
  stat(20, 10);
  EXPECT_EQ(sample(kStart + 4s).cpu, 1.0);
}

TEST_F(SensorsTest, MemoryIsWhatIsNotAvailable) { EXPECT_EQ(sample().memory, 0.75); }

TEST_F(SensorsTest, OwnMemoryIsWhatIsResidentAgainstTheTightestLimit) {
  lay("proc/self/status", "Name:\theadgate\nVmPeak:\t  900000 kB\nVmRSS:\t  204800 kB\n");
  EXPECT_EQ(sensors_.own_memory().used, 204'800U * 1024);
  EXPECT_EQ(sensors_.own_memory().limit, 1'024'000U * 1024) << "the machine's";
  cgroup("/app/one");
  lay("sys/fs/cgroup/app/one/memory.max", "max\n");
  lay("sys/fs/cgroup/app/memory.max", "268435456\n");
  EXPECT_EQ(sensors_.own_memory().limit, 268'435'456U);
}

TEST_F(SensorsTest, AQuotaIsWhatCpuIsMeasuredAgainst) {
  cgroup("/app");
  lay("sys/fs/cgroup/app/cpu.max", "50000 100000\n");
  lay("sys/fs/cgroup/app/cpu.stat", "usage_usec 1000000\nuser_usec 1\n");
  EXPECT_EQ(sample().cpu, std::nullopt);
  lay("sys/fs/cgroup/app/cpu.stat", "usage_usec 1200000\nuser_usec 1\n");
  EXPECT_EQ(sample(kStart).cpu, std::nullopt) << "no time has passed";
  lay("sys/fs/cgroup/app/cpu.stat", "usage_usec 1400000\nuser_usec 1\n");
  EXPECT_NEAR(*sample(kStart + 1s).cpu, 0.4, 1e-9) << "0.2 s of the 0.5 s it may use";
  lay("sys/fs/cgroup/app/cpu.stat", "usage_usec 9400000\n");
  EXPECT_EQ(sample(kStart + 2s).cpu, 1.0) << "never over 1";
  lay("sys/fs/cgroup/app/cpu.stat", "usage_usec 5\n");
  EXPECT_EQ(sample(kStart + 3s).cpu, std::nullopt) << "a counter that runs backwards says nothing";
  EXPECT_EQ(sample(kStart + 1s).cpu, std::nullopt) << "nor does a clock";
}

TEST_F(SensorsTest, TheTightestQuotaOnTheWayUpCounts) {
  cgroup("/a/b");
  lay("sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  lay("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  lay("sys/fs/cgroup/a/cpu.stat", "usage_usec 0\n");
  lay("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 0\n");
  (void)sample();
  lay("sys/fs/cgroup/a/cpu.stat", "usage_usec 900000\n");
  lay("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 100000\n");
  EXPECT_NEAR(*sample(kStart + 1s).cpu, 0.9, 1e-9) << "its other children use it up";
}

TEST_F(SensorsTest, AQuotaOfTheWholeMachineIsNone) {
  cgroup("/app");
  lay("sys/fs/cgroup/app/cpu.max", "400000 100000\n");
  lay("sys/fs/cgroup/app/cpu.stat", "usage_usec 0\n");
  (void)sample();
  stat(50, 50);
  EXPECT_NEAR(*sample(kStart + 1s).cpu, 0.5, 1e-12);
}

TEST_F(SensorsTest, AMemoryLimitCountsWhatCannotBeReclaimed) {
  cgroup("/a/b");
  lay("sys/fs/cgroup/a/b/memory.max", "1000000\n");
  lay("sys/fs/cgroup/a/b/memory.current", "600000\n");
  lay("sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file 100000\nactive_file 3\n");
  EXPECT_EQ(sample().memory, 0.5);
  lay("sys/fs/cgroup/a/memory.max", "2000000\n");
  lay("sys/fs/cgroup/a/memory.current", "1800000\n");
  EXPECT_EQ(sample().memory, 0.9) << "its parent has less left";
  lay("sys/fs/cgroup/a/memory.max", "0\n");
  EXPECT_EQ(sample().memory, 1.0);
  lay("sys/fs/cgroup/a/memory.max", "max\n");
  lay("sys/fs/cgroup/a/b/memory.max", "999999999999999\n");
  EXPECT_EQ(sample().memory, 0.75) << "a limit beyond the machine is none";
}

TEST_F(SensorsTest, AContainerThatSeesOnlyItsOwnTreeIsAtItsRoot) {
  lay("proc/self/cgroup", "0::/docker/0123\n");
  lay("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  lay("sys/fs/cgroup/memory.max", "1000\n");
  lay("sys/fs/cgroup/memory.current", "400\n");
  EXPECT_EQ(sample().memory, 0.4);
}

TEST_F(SensorsTest, PressureIsTheWorstOfThreeAndOursBeforeTheMachines) {
  EXPECT_EQ(sample().pressure, std::nullopt);
  lay("proc/pressure/cpu", "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(sample().pressure, 0.125);
  lay("proc/pressure/io", "some avg10=50.00 avg60=0.00\nfull avg10=99.00\n");
  EXPECT_EQ(sample().pressure, 0.5);
  cgroup("/app");
  lay("sys/fs/cgroup/app/io.pressure", "some avg10=25.00\n");
  EXPECT_EQ(sample().pressure, 0.25);
}

TEST_F(SensorsTest, NothingThereIsNothingRead) {
  Sensors nowhere(folder_.file("nowhere"));
  for (const Nanos now : {kStart, kStart + 1s}) {
    const LoadReading reading = nowhere.sample(now);
    EXPECT_FALSE(reading.cpu || reading.memory || reading.pressure || reading.reported);
  }
}

TEST(SensorsOfThisMachine, ReadWithinRange) {
  Sensors sensors;
  const LoadReading reading = sensors.sample(kStart);
  ASSERT_TRUE(reading.memory);
  EXPECT_GT(*reading.memory, 0);
  EXPECT_LE(*reading.memory, 1);
}

TEST(ProcText, JunkReadsAsNothing) {
  for (const char* junk : {"", "\n", "cpu", "cpu a b c d", "cpu 1 2 3", "cpu -1 2 3 4",
                           "cpu 99999999999999999999 0 0 0", "intr 1\ncpu 1 2 3 4"}) {
    EXPECT_FALSE(parse_proc_stat(junk)) << junk;
  }
  EXPECT_FALSE(parse_meminfo("MemTotal: 5 kB"));
  EXPECT_FALSE(parse_meminfo("MemTotal: 0 kB\nMemAvailable: 0 kB"));
  EXPECT_FALSE(parse_meminfo("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB"));
  for (const char* junk : {"", "max", "1 2", "-1", "0x10", "1e3"}) EXPECT_FALSE(parse_number(junk)) << junk;
  for (const char* junk : {"", "max 100000", "1", "1 0", "0 1", "1 x"}) EXPECT_FALSE(parse_cpu_max(junk)) << junk;
  for (const char* junk : {"", "full avg10=1", "some", "some avg60=1", "some avg10=", "some avg10=nan",
                           "some avg10=101", "some avg10=-1"}) {
    EXPECT_FALSE(parse_pressure(junk)) << junk;
  }
  for (const char* junk : {"", "1:cpu:/a", "0::", "0::/../x", "0::/a/../b"}) EXPECT_FALSE(parse_cgroup(junk)) << junk;
  EXPECT_EQ(parse_cgroup("4:memory:/x\n0::/a/b\n"), "/a/b");
}

RC_GTEST_PROP(ProcText, NoTextBreaksAReader, ()) {
  const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(
      rc::gen::element<std::string>("cpu", "cpu0", "some", "avg10=", "avg10=5", "\n", " ", "0::/", "MemTotal:", "max",
                                    "MemAvailable:", "18446744073709551615", "usage_usec", "-1", "1e400"),
      rc::gen::string<std::string>()));
  std::string text;
  for (const std::string& word : words) text += word;
  (void)parse_proc_stat(text);
  (void)parse_meminfo(text);
  (void)parse_field(text, "usage_usec");
  (void)parse_number(text);
  (void)parse_cpu_max(text);
  (void)parse_cgroup(text);
  const auto pressure = parse_pressure(text);
  if (pressure) RC_ASSERT(*pressure >= 0 && *pressure <= 1);
}

}  // namespace
}  // namespace headgate::control

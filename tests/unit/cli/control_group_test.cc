#include "cli/run/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace headgate::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST(ControlGroup, FindsTheFolderOfItsOwnGroup) {
  constexpr std::string_view kUnified =
      "24 1 0:22 / /proc rw - proc proc rw\n30 24 0:26 / /sys/fs/cgroup rw - cgroup2 x rw\n";
  EXPECT_EQ(own_control_group("0::/user.slice/a.scope\n", kUnified), "/sys/fs/cgroup/user.slice/a.scope");
  EXPECT_EQ(own_control_group("0::/\n", kUnified), "/sys/fs/cgroup");
  EXPECT_EQ(own_control_group("4:memory:/x\n1:cpu:/\n0::/a\n", kUnified), "/sys/fs/cgroup/a");
}

TEST(ControlGroup, AMountThatShowsAPartIsReadAsThatPart) {
  constexpr std::string_view kPart = "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  EXPECT_EQ(own_control_group("0::/docker/abc/job\n", kPart), "/sys/fs/cgroup/job");
  EXPECT_EQ(own_control_group("0::/docker/abc\n", kPart), "/sys/fs/cgroup");
  EXPECT_EQ(own_control_group("0::/docker/abcdef\n", kPart), "");
}

TEST(ControlGroup, VersionOneAloneHasNone) {
  EXPECT_EQ(own_control_group("4:memory:/x\n1:cpu:/\n", "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"),
            "");
  EXPECT_EQ(own_control_group("0::/x\n", ""), "");
}

// The files that the kernel would show, in a folder of our own.
class ControlGroupFiles : public ::testing::Test {
 protected:
  ControlGroupFiles() {
    std::string pattern = (fs::temp_directory_path() / "headgate-group-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ControlGroupFiles() override { fs::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  [[nodiscard]] std::string get(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path folder_;
};

TEST_F(ControlGroupFiles, TellsThePaceAndReadsWhatWasUsed) {
  put("cgroup.procs", "");
  put("cgroup.threads", "");
  put("cpu.max", "max 100000\n");
  put("cpu.stat", "usage_usec 1234567\nuser_usec 1000000\n");
  put("memory.peak", "209715200\n");
  Result<ControlGroup> group = ControlGroup::open(folder_.string());
  ASSERT_TRUE(group);
  EXPECT_GE(group->door(), 0);
  EXPECT_TRUE(group->pace(0.4, 8));
  EXPECT_EQ(get("cpu.max"), "40000 100000");
  EXPECT_TRUE(group->pace(1, 8));
  EXPECT_EQ(get("cpu.max"), "max 100000");
  EXPECT_EQ(group->cpu_time(), Nanos{1234567us});
  EXPECT_EQ(group->peak_bytes(), 200u << 20);
}

TEST_F(ControlGroupFiles, WithoutTheFilesThereIsNothingToTell) {
  put("cgroup.procs", "");
  Result<ControlGroup> group = ControlGroup::open(folder_.string());
  ASSERT_TRUE(group);
  EXPECT_FALSE(group->pace(0.4, 8)) << "no cpu.max";
  EXPECT_FALSE(group->cpu_time());
  EXPECT_FALSE(group->peak_bytes());
}

TEST_F(ControlGroupFiles, IsMadeOnlyWhereTheCpuControllerIsHandedDown) {
  put("cgroup.subtree_control", "cpuset memory pids\n");
  const Result<ControlGroup> none = ControlGroup::make(folder_.string(), "run");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, folder_.string() + " does not hand the cpu controller down");
  put("cgroup.subtree_control", "cpuset cpu memory\n");
  const Result<ControlGroup> useless = ControlGroup::make(folder_.string(), "run");
  ASSERT_FALSE(useless) << "no kernel put files into it";
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "what cannot be used is taken away again";
}

}  // namespace
}  // namespace headgate::cli

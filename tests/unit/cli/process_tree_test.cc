#include "cli/run/process_tree.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace headgate::cli {
namespace {

constexpr std::string_view kStat =
    "4242 (sh) S 77 4242 4242 0 -1 4194304 1 2 3 4 10 20 300 4000 20 0 1 0 5555 1000 10 18446744073709551615";

TEST(ProcessTree, ReadsALineOfStat) {
  const auto process = parse_stat(kStat);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, 4242);
  EXPECT_EQ(process->parent, 77);
  EXPECT_EQ(process->state, 'S');
  EXPECT_EQ(process->ticks, 4330u);
}

TEST(ProcessTree, ANameMayHoldBlanksAndBrackets) {
  for (const char* name : {"a b", ") R 1 (", "x) S 1", "(", ")", ""}) {
    std::string line(kStat);
    line.replace(line.find("sh"), 2, name);
    const auto process = parse_stat(line);
    ASSERT_TRUE(process) << line;
    EXPECT_EQ(process->parent, 77) << line;
  }
}

TEST(ProcessTree, WhatIsNoLineOfStatReadsAsNothing) {
  for (const char* line : {"", "12", "12 (sh)", "12 (sh) ", "x (sh) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "12 (sh) S",
                           "12 (sh) S 1 1 1 1 1 1 1 1 1 1 1 1", "12 (sh) SS 1 1 1 1 1 1 1 1 1 1 1 1 1 1"}) {
    EXPECT_FALSE(parse_stat(line)) << line;
  }
}

TEST(ProcessTree, FindsAllDescendantsParentsFirst) {
  const auto process = [](pid_t pid, pid_t parent) {
    Process one;
    one.pid = pid;
    one.parent = parent;
    return one;
  };
  const std::vector<Process> all{process(9, 5), process(1, 0), process(5, 3), process(3, 2),
                                 process(2, 1), process(4, 3), process(8, 1)};
  std::vector<pid_t> found;
  for (const Process& one : descendants(all, 2)) found.push_back(one.pid);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0], 3);
  EXPECT_EQ(found[3], 9);
  EXPECT_TRUE(descendants(all, 8).empty());
}

TEST(ProcessTree, ATableThatChangedWhileItWasReadIsNoEndlessLoop) {
  Process one;
  one.pid = 5;
  one.parent = 6;
  Process other;
  other.pid = 6;
  other.parent = 5;
  EXPECT_LE(descendants({one, other}, 5).size(), 4u);
}

TEST(ProcessTree, MemoryIsWhatEachHasForItselfAndTheLargestSharedPartOnce) {
  EXPECT_EQ(memory_bytes_of({{100, 40}, {50, 30}}, 4096), (60 + 20 + 40) * 4096u);
  EXPECT_EQ(memory_bytes_of({{10, 40}}, 1), 10u) << "shared cannot be more than there is";
  EXPECT_EQ(memory_bytes_of({}, 4096), 0u);
  const auto pages = parse_statm("1000 100 40 1 0 30 0\n");
  ASSERT_TRUE(pages);
  EXPECT_EQ(pages->resident, 100u);
  EXPECT_EQ(pages->shared, 40u);
  EXPECT_FALSE(parse_statm("1000"));
}

TEST(ProcessTree, FindsThisProcessAmongAll) {
  const std::vector<Process> all = all_processes();
  const auto self = std::find_if(all.begin(), all.end(), [](const Process& one) { return one.pid == ::getpid(); });
  ASSERT_NE(self, all.end());
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_GT(memory_bytes({*self}), 1u << 20);
}

}  // namespace
}  // namespace headgate::cli

// Real files, a real inotify and real signals. The time that debouncing goes by is passed in; tests wait for the
// descriptor, with a deadline that only a failure reaches.
#include "server/reload_trigger.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <string>

#include "support/cells.h"

namespace headgate::server {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using test::write_bytes;

constexpr int kDeadlineMs = 20'000;

bool readable(int fd, int timeout_ms) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, timeout_ms) == 1;
}

TEST(Debounce, IsDueAfterQuietOrAtMostAWhileAfterTheFirst) {
  Debounce debounce({.quiet = 100ms, .most = 2s});
  EXPECT_EQ(debounce.due_at(), std::nullopt);
  EXPECT_FALSE(debounce.take(1h));
  debounce.touch(1s);
  EXPECT_EQ(debounce.due_at(), 1100ms);
  debounce.touch(1050ms);
  debounce.touch(900ms);
  EXPECT_EQ(debounce.due_at(), 1150ms) << "a change from the past changes nothing";
  EXPECT_FALSE(debounce.take(1150ms - 1ns));
  EXPECT_TRUE(debounce.take(1150ms));
  EXPECT_FALSE(debounce.take(1h)) << "once";
  for (Nanos now = 10s; now < 12s; now += 50ms) {
    debounce.touch(now);
    EXPECT_FALSE(debounce.take(now));
  }
  EXPECT_TRUE(debounce.take(12s));
}

class WatchListTest : public testing::Test {
 protected:
  WatchList open(const std::vector<std::string>& paths) {
    auto list = WatchList::open(paths);
    if (!list) throw std::runtime_error(list.error().message);
    return std::move(*list);
  }
  // The kernel queues an event before the call that caused it returns, so there is nothing to wait for.
  static bool noticed(WatchList& list) {
    bool any = false;
    while (readable(list.fd(), 0)) any = list.drain() || any;
    return any;
  }
  test::TempFolder folder_;
  std::string file_ = folder_.file("policies.yaml");
};

TEST_F(WatchListTest, NoticesAFileWrittenRenamedOverAndRemoved) {
  write_bytes(file_, "1");
  WatchList list = open({file_});
  EXPECT_FALSE(noticed(list));
  write_bytes(file_, "2");
  EXPECT_TRUE(noticed(list));
  for (int i = 0; i < 2; ++i) {
    write_bytes(folder_.file("policies.yaml~"), "3");
    EXPECT_FALSE(noticed(list)) << "another file";
    fs::rename(folder_.file("policies.yaml~"), file_);
    EXPECT_TRUE(noticed(list));
  }
  fs::remove(file_);
  EXPECT_TRUE(noticed(list));
  write_bytes(file_, "4");
  EXPECT_TRUE(noticed(list));
}

TEST_F(WatchListTest, NoticesTheDocumentsInAFolderAndNothingElse) {
  fs::create_directory(folder_.file("conf"));
  WatchList list = open({folder_.file("conf/")});
  for (const char* name : {"a.yaml", "b.yml", "c.json"}) {
    write_bytes(folder_.file("conf/") + name, "1");
    EXPECT_TRUE(noticed(list)) << name;
    fs::remove(folder_.file("conf/") + name);
    EXPECT_TRUE(noticed(list)) << name;
  }
  for (const char* name : {"a.yaml~", ".a.yaml.swp", ".hidden.yaml", "README.md", "4913"}) {
    write_bytes(folder_.file("conf/") + name, "1");
    EXPECT_FALSE(noticed(list)) << name;
  }
}

TEST_F(WatchListTest, WaitsForAPathWhoseFoldersAreMissing) {
  WatchList list = open({folder_.file("a/b/policies.yaml")});
  write_bytes(folder_.file("other"), "1");
  EXPECT_FALSE(noticed(list));
  fs::create_directory(folder_.file("a"));
  EXPECT_TRUE(noticed(list));
  fs::create_directory(folder_.file("a/b"));
  EXPECT_TRUE(noticed(list));
  write_bytes(folder_.file("a/b/policies.yaml"), "1");
  EXPECT_TRUE(noticed(list));
}

TEST_F(WatchListTest, FindsWhatAppearedAllAtOnce) {
  WatchList list = open({folder_.file("a/b/policies.yaml")});
  fs::create_directories(folder_.file("a/b"));
  EXPECT_TRUE(noticed(list));
  write_bytes(folder_.file("a/b/policies.yaml"), "1");
  EXPECT_TRUE(noticed(list));
}

TEST_F(WatchListTest, FollowsAFolderThatGoesAndComesBack) {
  fs::create_directory(folder_.file("conf"));
  WatchList list = open({folder_.file("conf")});
  fs::rename(folder_.file("conf"), folder_.file("old"));
  EXPECT_TRUE(noticed(list));
  write_bytes(folder_.file("old/a.yaml"), "1");
  EXPECT_FALSE(noticed(list)) << "it is no longer ours";
  fs::create_directory(folder_.file("conf"));
  EXPECT_TRUE(noticed(list));
  write_bytes(folder_.file("conf/a.yaml"), "1");
  EXPECT_TRUE(noticed(list));
  fs::remove_all(folder_.file("conf"));
  EXPECT_TRUE(noticed(list));
}

TEST_F(WatchListTest, FollowsSymbolicLinksThatAreSwapped) {
  // As Kubernetes mounts a ConfigMap.
  for (const char* name : {"..1", "..2"}) {
    fs::create_directory(folder_.file(name));
    write_bytes(folder_.file(std::string(name) + "/policies.yaml"), name);
  }
  fs::create_directory_symlink("..1", folder_.file("..data"));
  fs::create_symlink("..data/policies.yaml", file_);
  WatchList list = open({file_});
  EXPECT_FALSE(noticed(list));
  fs::create_directory_symlink("..2", folder_.file("..data_tmp"));
  EXPECT_FALSE(noticed(list));
  fs::rename(folder_.file("..data_tmp"), folder_.file("..data"));
  EXPECT_TRUE(noticed(list));
  write_bytes(folder_.file("..2/policies.yaml"), "new");
  EXPECT_TRUE(noticed(list)) << "where the link leads now";
  write_bytes(folder_.file("..1/policies.yaml"), "old");
  EXPECT_FALSE(noticed(list));
}

TEST_F(WatchListTest, FollowsALinkInTheMiddleOfThePath) {
  for (const char* name : {"one", "two"}) fs::create_directory(folder_.file(name));
  fs::create_directory_symlink("one", folder_.file("current"));
  WatchList list = open({folder_.file("current/policies.yaml")});
  fs::create_directory_symlink("two", folder_.file("next"));
  fs::rename(folder_.file("next"), folder_.file("current"));
  EXPECT_TRUE(noticed(list));
  write_bytes(folder_.file("two/policies.yaml"), "1");
  EXPECT_TRUE(noticed(list));
}

TEST_F(WatchListTest, RefusesPathsThatNameNothing) {
  EXPECT_EQ(WatchList::open({""}).error().message, "a path to watch must name a file or a folder, got \"\"");
  EXPECT_EQ(WatchList::open({"/"}).error().message, "a path to watch must name a file or a folder, got \"/\"");
  EXPECT_EQ(WatchList::open(std::vector<std::string>(257, "a")).error().message,
            "paths to watch must be at most 256, got 257");
}

class ReloadTriggerTest : public testing::Test {
 protected:
  ReloadTrigger open(bool hangup) {
    auto trigger = ReloadTrigger::open({.paths = {file_}, .hangup = hangup, .debounce = {}});
    if (!trigger) throw std::runtime_error(trigger.error().message);
    return std::move(*trigger);
  }
  test::TempFolder folder_;
  std::string file_ = folder_.file("policies.yaml");
};

TEST_F(ReloadTriggerTest, ABurstOfChangesIsOneReload) {
  ReloadTrigger trigger = open(false);
  EXPECT_FALSE(readable(trigger.fd(), 0));
  for (int i = 0; i < 5; ++i) write_bytes(file_, std::to_string(i));
  ASSERT_TRUE(readable(trigger.fd(), kDeadlineMs));
  EXPECT_EQ(trigger.drain(1s), std::nullopt) << "not quiet yet";
  ASSERT_TRUE(readable(trigger.fd(), kDeadlineMs)) << "the timer";
  EXPECT_EQ(trigger.drain(1099ms), std::nullopt) << "a timer that is early is set again";
  ASSERT_TRUE(readable(trigger.fd(), kDeadlineMs));
  EXPECT_EQ(trigger.drain(1100ms), ReloadCause::kFiles);
  EXPECT_FALSE(readable(trigger.fd(), 0));
  EXPECT_EQ(trigger.drain(1h), std::nullopt);
}

TEST_F(ReloadTriggerTest, ChangesWithoutEndAreReloadedAllTheSame) {
  ReloadTrigger trigger = open(false);
  std::optional<Nanos> reloaded;
  for (Nanos now = 0s; now <= 2s && !reloaded; now += 50ms) {
    write_bytes(file_, "1");
    if (trigger.drain(now)) reloaded = now;
  }
  EXPECT_EQ(reloaded, 2s);
}

TEST_F(ReloadTriggerTest, SighupReloadsAndIsGivenBack) {
  const auto handler = [] {
    struct sigaction action {};
    ::sigaction(SIGHUP, nullptr, &action);
    return action.sa_handler;
  };
  const auto before = handler();
  {
    ReloadTrigger trigger = open(true);
    EXPECT_NE(handler(), before);
    EXPECT_EQ(ReloadTrigger::open({.paths = {file_}, .hangup = true, .debounce = {}}).error().message,
              "SIGHUP must have one listener in a process, got a second");
    ::raise(SIGHUP);
    write_bytes(file_, "1");
    ASSERT_TRUE(readable(trigger.fd(), kDeadlineMs));
    EXPECT_EQ(trigger.drain(1s), std::nullopt);
    EXPECT_EQ(trigger.drain(1100ms), ReloadCause::kSignal) << "the signal before the files";
    write_bytes(file_, "2");
    EXPECT_EQ(trigger.drain(2s), std::nullopt);
    EXPECT_EQ(trigger.drain(3s), ReloadCause::kFiles);
    ::raise(SIGHUP);
  }
  EXPECT_EQ(handler(), before);
  EXPECT_FALSE(readable(open(true).fd(), 0)) << "a signal is for the listener it came to";
}

TEST_F(ReloadTriggerTest, AThreadCallsBackAndStopsCleanly) {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<ReloadCause> causes;
  const auto called = [&](std::size_t times) {
    std::unique_lock lock(mutex);
    return wake.wait_for(lock, std::chrono::milliseconds{kDeadlineMs}, [&] { return causes.size() >= times; });
  };
  auto thread = ReloadThread::start({.paths = {file_}, .hangup = true, .debounce = {.quiet = 1ms, .most = 2s}},
                                    [&](ReloadCause cause) {
                                      const std::lock_guard guard(mutex);
                                      causes.push_back(cause);
                                      wake.notify_all();
                                    });
  ASSERT_TRUE(thread) << thread.error().message;
  write_bytes(file_, "1");
  EXPECT_TRUE(called(1));
  ::kill(::getpid(), SIGHUP);
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(wake.wait_for(lock, std::chrono::milliseconds{kDeadlineMs},
                              [&] { return causes.back() == ReloadCause::kSignal; }));
  }
  thread->reset();
  const std::size_t count = causes.size();
  write_bytes(file_, "2");
  EXPECT_EQ(causes.size(), count);
}

TEST_F(ReloadTriggerTest, AThreadThatHasNothingToDoStops) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(ReloadThread::start({.paths = {file_}, .hangup = true, .debounce = {}}, [](ReloadCause) {}));
  }
}

}  // namespace
}  // namespace headgate::server

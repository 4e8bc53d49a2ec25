// One SQLite file: a connection that writes and one that reads, and whether the disk takes writes.
//
// Safe for concurrent use. Internal to src/state.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/durability.h"
#include "headgate/result.h"

namespace headgate::state {

[[nodiscard]] Error error_of(const SQLite::Exception& e, const std::string& path);

class SqliteFile {
 public:
  static constexpr int kBusyTimeoutMs = 5'000;  // while it is opened
  // Later an attempt is given up after this time. Its callers get an Error; the change is tried again.
  static constexpr int kAttemptMs = 1'000;

  // Makes the file if it is missing, for its owner alone: SQLite would make it as the umask has it. Its companions get
  // the same mode. Refuses a file that is not a database of ours.
  [[nodiscard]] static Result<void> make(const std::string& path);
  // May throw SQLite::Exception, as may prepare().
  explicit SqliteFile(std::string path);
  // Brings the schema up to date and checks that the file is whole. Before anything else.
  [[nodiscard]] Result<void> prepare(base::Durability durability);
  // From now on a locked file is waited for kAttemptMs only, and reading has a connection of its own.
  void start();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool in_memory() const noexcept { return in_memory_; }

  // Runs `work` in one transaction and notes how it went, for ping().
  template <class Work>
  Result<void> write(Work work) {
    const std::lock_guard guard(mutex_);
    return write_locked([&] { work(file_); });
  }
  // By a connection of its own, since reading need not wait for a writer. A database in memory has one connection only.
  template <class T, class Work>
  Result<T> read(Work work) {
    const std::lock_guard guard(in_memory_ ? mutex_ : reader_mutex_);
    try {
      return work(in_memory_ ? file_ : *reader_);
    } catch (const SQLite::Exception& e) {
      return error_of(e, path_);
    }
  }
  // Whether it can still be written to. Only after something has failed does it try a real write. Waits for the disk.
  [[nodiscard]] Result<void> ping();

 private:
  template <class Work>
  Result<void> write_locked(Work work) {
    try {
      SQLite::Transaction transaction(file_, SQLite::TransactionBehavior::IMMEDIATE);
      work();
      transaction.commit();
      trouble_ = false;
      return {};
    } catch (const SQLite::Exception& e) {
      trouble_ = true;
      return error_of(e, path_);
    }
  }

  const std::string path_;
  const bool in_memory_;
  std::mutex mutex_;  // held while the disk is written; guards these two
  SQLite::Database file_;
  bool trouble_ = false;  // the last write failed
  std::mutex reader_mutex_;
  std::optional<SQLite::Database> reader_;
};

}  // namespace headgate::state

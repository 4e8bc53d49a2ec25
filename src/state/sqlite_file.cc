#include "state/sqlite_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "state/schema.h"

namespace headgate::state {

Error error_of(const SQLite::Exception& e, const std::string& path) {
  Error error;
  error.code = ErrorCode::kIo;
  switch (e.getErrorCode()) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      error.code = ErrorCode::kCorrupt;
      error.message = fmt::format(
          "{}: is damaged ({}); restore it from a backup, or move its folder away to start afresh", path, e.what());
      return error;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      error.transient = true;
      error.message = fmt::format("{}: is in use by another program ({})", path, e.what());
      return error;
    case SQLITE_FULL:
      error.transient = true;
      error.message = fmt::format("{}: its disk is full; make room, and try again", path);
      return error;
    case SQLITE_IOERR:
      error.transient = true;
      error.message = fmt::format("{}: {}; see that its disk has room and works, then try again", path, e.what());
      return error;
    default: break;
  }
  error.message = fmt::format("{}: {}", path, e.what());
  return error;
}

Result<void> SqliteFile::make(const std::string& path) {
  if (Result<void> checked = check_header(path); !checked) return checked;
  const int made = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (made < 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be opened: {}", path, std::strerror(errno))};
  }
  ::close(made);
  return {};
}

SqliteFile::SqliteFile(std::string path)
    : path_(std::move(path)),
      in_memory_(path_ == ":memory:"),
      file_(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeoutMs) {}

Result<void> SqliteFile::prepare(base::Durability durability) {
  file_.exec("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF");
  file_.exec(durability == base::Durability::kSync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
  if (Result<void> migrated = migrate(file_, path_); !migrated) return migrated;
  file_.exec("PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = 8388608");
  const std::string state = file_.execAndGet("PRAGMA quick_check(1)").getString();
  if (state != "ok") {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: is damaged ({}); restore it from a backup, or move its folder away "
                             "to start afresh",
                             path_, state)};
  }
  return {};
}

void SqliteFile::start() {
  file_.setBusyTimeout(kAttemptMs);
  if (!in_memory_) reader_.emplace(path_, SQLite::OPEN_READONLY, kBusyTimeoutMs);
}

Result<void> SqliteFile::ping() {
  const std::lock_guard guard(mutex_);
  int moved = 0;
  if (sqlite3_file_control(file_.getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: has been moved or removed while in use", path_)};
  }
  if (trouble_) {
    return write_locked([&] { file_.exec("UPDATE touched SET times = times + 1"); });
  }
  try {
    const SQLite::Transaction begun(file_, SQLite::TransactionBehavior::IMMEDIATE);  // and rolled back
  } catch (const SQLite::Exception& e) {
    return error_of(e, path_);
  }
  return {};
}

}  // namespace headgate::state

#include "state/data_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace headgate::state {

Result<DataFolder> DataFolder::open(const std::string& path) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(path, error);
  if (error) return Error{ErrorCode::kIo, fmt::format("data {}: {}", path, error.message())};
  if (made && ::chmod(path.c_str(), 0700) != 0) {
    return Error{ErrorCode::kIo, fmt::format("data {}: {}", path, std::strerror(errno))};
  }
  struct stat about {};
  const bool open_to_others = !made && ::stat(path.c_str(), &about) == 0 && (about.st_mode & 077) != 0;
  DataFolder folder(path, open_to_others ? fmt::format("{:04o}", about.st_mode & 07777) : std::string());
  if (Result<void> locked = folder.lock(); !locked) return std::move(locked).error();
  return folder;
}

Result<void> DataFolder::lock() {
  const std::string path = file("lock");
  lock_ = base::Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock_.get() < 0) return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: another server is using this folder; stop it, or give this one a folder "
                             "of its own with --data",
                             path_)};
  }
  // A second lock that can be queried without taking it: the command line sends the admin token of this folder only to
  // the process that holds it.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  (void)::fcntl(lock_.get(), F_OFD_SETLK, &whole);
  return {};
}

Result<void> DataFolder::check_database(const std::string& database) const {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(database, error);
  if (!error && size > 0) return {};
  if (!std::filesystem::exists(file("admin.token"), error)) return {};
  return Error{
      ErrorCode::kCorrupt,
      fmt::format("{}: is {}, but admin.token beside it is of an earlier start: put the database back, or move "
                  "all files out of {} to start anew",
                  database, size == 0 ? "empty" : "missing", path_)};
}

bool DataFolder::announce(const std::string& address) const {
  const std::string line = address + "\n";
  return ::ftruncate(lock_.get(), 0) == 0 && ::pwrite(lock_.get(), line.data(), line.size(), 0) >= 0;
}

}  // namespace headgate::state

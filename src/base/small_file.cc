#include "base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/descriptor.h"

namespace headgate::base {
namespace {

Error io_error(const std::string& path, const char* what) {
  return {ErrorCode::kIo, path + ": " + what + ": " + std::strerror(errno), true};
}

bool write_and_sync(const std::string& path, std::string_view bytes) {
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return false;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(file.get()) == 0;
}

bool sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const base::Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return file && ::fsync(file.get()) == 0;
}

}  // namespace

Result<std::optional<std::string>> read_start(const std::string& path, std::size_t most) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
  if (!file) return io_error(path, "cannot be read");
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return io_error(path, "cannot be read");
  if (!S_ISREG(about.st_mode)) return Error{ErrorCode::kIo, path + ": cannot be read: it must be a regular file"};
  std::string bytes(most, '\0');
  std::size_t done = 0;
  while (done < most) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, most - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, "cannot be read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return std::optional(std::move(bytes));
}

Result<void> write_whole(const std::string& path, std::string_view bytes) {
  static std::mutex one_at_a_time;
  const std::lock_guard alone(one_at_a_time);
  const std::string beside = path + ".new";
  // A file that a crash or another user has left there is not written into.
  ::unlink(beside.c_str());
  if (!write_and_sync(beside, bytes)) {
    Error error = io_error(beside, "cannot be written");
    ::unlink(beside.c_str());
    return error;
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    Error error = io_error(path, "cannot be put in place");
    ::unlink(beside.c_str());
    return error;
  }
  if (!sync_folder_of(path)) return io_error(path, "cannot be synced");
  return {};
}

}  // namespace headgate::base

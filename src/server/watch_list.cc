#include "server/watch_list.h"

#include <sys/inotify.h>
#include <sys/stat.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

namespace headgate::server {
namespace {

// IN_MODIFY is left out: a half-written file is of no use, and its writer closes it in the end.
constexpr std::uint32_t kEvents = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |
                                  IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr std::uint32_t kFolderGone = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT;
constexpr std::size_t kMaxReads = 64;  // of one drain; what is left keeps the descriptor readable

bool is_document(std::string_view name) {
  if (name.starts_with('.')) return false;
  return name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json");
}

struct Split {
  std::string folder;
  std::string name;
};
// REQUIRES: an absolute path without a slash at its end, or the root, which has no name.
Split split(const std::string& path) {
  assert(path.starts_with('/') && (path.size() == 1 || !path.ends_with('/')));
  const std::size_t slash = path.rfind('/');
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

bool exists(const std::string& path, struct stat& about) { return ::lstat(path.c_str(), &about) == 0; }

}  // namespace

bool WatchList::Names::concern(std::string_view name) const {
  return exact.contains(name) || (documents && is_document(name));
}

Result<WatchList> WatchList::open(const std::vector<std::string>& paths) {
  if (paths.size() > kMaxPaths) {
    return Error{ErrorCode::kInvalidArgument, "paths to watch must be at most " + std::to_string(kMaxPaths) + ", got " +
                                                  std::to_string(paths.size())};
  }
  std::vector<std::string> absolute;
  for (const std::string& path : paths) {
    std::error_code failed;
    std::string whole = std::filesystem::absolute(path, failed).lexically_normal().string();
    while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
    if (path.empty() || failed || whole.size() < 2) {
      return Error{ErrorCode::kInvalidArgument, "a path to watch must name a file or a folder, got \"" + path + "\""};
    }
    absolute.push_back(std::move(whole));
  }
  base::Descriptor inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify) {
    return Error{ErrorCode::kIo,
                 std::string("files cannot be watched (see fs.inotify.max_user_instances): ") + std::strerror(errno),
                 true};
  }
  WatchList list(std::move(inotify), std::move(absolute));
  list.watch_again();
  if (!list.complete_) {
    return Error{ErrorCode::kIo, "files cannot be watched: no more watches (see fs.inotify.max_user_watches)", true};
  }
  return list;
}

// Sets the watches that the paths need now, and drops the others.
void WatchList::watch_again() {
  const std::map<int, Names> before = std::exchange(watches_, {});
  complete_ = true;
  for (const std::string& path : paths_) watch_path(path);
  for (const auto& [watch, names] : before) {
    if (!watches_.contains(watch)) ::inotify_rm_watch(inotify_.get(), watch);
  }
}

void WatchList::watch_path(const std::string& path) {
  // Down from the root, as far as there is something: the first missing name, and each symbolic link on the way.
  struct stat about {};
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const auto [folder, name] = split(path.substr(0, slash));
    const std::string here = path.substr(0, slash);
    if (slash == std::string::npos || !exists(here, about) || S_ISLNK(about.st_mode)) watch_name(folder, name);
    // Asked after it is watched: what appears in between is not missed.
    if (!exists(here, about)) return;
    if (slash == std::string::npos) break;
  }
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) return;
  const auto [folder, name] = split(real.get());
  if (real.get() != path && !name.empty()) watch_name(folder, name);
  if (::stat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) return;
  if (Names* names = watch(path)) {
    names->documents = true;
    names->exact.emplace("..data");
  }
}

WatchList::Names* WatchList::watch(const std::string& folder) {
  const int watch = ::inotify_add_watch(inotify_.get(), folder.c_str(), kEvents);
  if (watch >= 0) return &watches_[watch];
  // A folder that is gone or closed to us is waited for like a file that is not there.
  if (errno == ENOSPC || errno == ENOMEM) complete_ = false;
  return nullptr;
}

void WatchList::watch_name(const std::string& folder, std::string_view name) {
  Names* names = watch(folder);
  if (names == nullptr) return;
  names->exact.emplace(name);
  names->exact.emplace("..data");
}

bool WatchList::concerns(int watch, unsigned mask, std::string_view name) const {
  if ((mask & IN_Q_OVERFLOW) != 0) return true;
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return false;
  return (mask & kFolderGone) != 0 || found->second.concern(name);
}

bool WatchList::drain() {
  alignas(inotify_event) std::array<char, 16 * (sizeof(inotify_event) + NAME_MAX + 1)> buffer;
  bool concerned = false;
  for (std::size_t reads = 0; reads < kMaxReads; ++reads) {
    const ssize_t got = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      const char* name = buffer.data() + at + sizeof(event);
      concerned = concerns(event.wd, event.mask, {name, ::strnlen(name, event.len)}) || concerned;
      at += sizeof(event) + event.len;
    }
  }
  if (concerned || !complete_) watch_again();
  return concerned;
}

}  // namespace headgate::server

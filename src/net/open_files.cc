#include "net/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace headgate::net {

Result<OpenFiles> make_room_for(std::size_t connections) {
  constexpr std::size_t kFewestFiles = 64;
  constexpr std::size_t kOwnFiles = 256;  // the database, the snapshot, policies, sockets that listen
  const std::size_t needed = connections + kOwnFiles;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return OpenFiles{connections, needed, needed};
  if (files.rlim_cur < needed) {
    files.rlim_cur = std::min<rlim_t>(needed, files.rlim_max);
    (void)::setrlimit(RLIMIT_NOFILE, &files);
    (void)::getrlimit(RLIMIT_NOFILE, &files);
  }
  const std::size_t allowed = files.rlim_cur;
  if (allowed >= needed) return OpenFiles{connections, needed, allowed};
  if (allowed < kFewestFiles) {
    return Error{ErrorCode::kIo,
                 fmt::format("open files: needs at least {}, has {}; raise ulimit -n (LimitNOFILE= of a "
                             "systemd unit)",
                             kFewestFiles, allowed)};
  }
  return OpenFiles{allowed > 2 * kOwnFiles ? allowed - kOwnFiles : allowed / 2, needed, allowed};
}

}  // namespace headgate::net

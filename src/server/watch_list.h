// A WatchList tells when files, or folders of policy documents, have changed, by inotify on the folders they are in.
//
// It follows names, not files: an editor that renames over, a path that does not exist yet at any of its levels, a
// symbolic link on the way that is swapped (as Kubernetes does with ..data), a folder that goes and comes back.
// Not safe for concurrent use. Holds one descriptor and about two watches for each path.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "headgate/result.h"

namespace headgate::server {

class WatchList {
 public:
  static constexpr std::size_t kMaxPaths = 256;

  // A path to a folder means the *.yaml, *.yml and *.json in it, but not hidden ones. Fails when there are too many
  // paths, or when the kernel gives no more watches.
  static Result<WatchList> open(const std::vector<std::string>& paths);

  // Readable when there is something to drain.
  [[nodiscard]] int fd() const noexcept { return inotify_.get(); }
  // Takes in what has happened, without waiting; true if some of it concerns the paths.
  bool drain();
  // False: the kernel refused a watch, so a change may go unseen until the next one that is seen.
  [[nodiscard]] bool complete() const noexcept { return complete_; }

 private:
  // What matters in a watched folder.
  struct Names {
    std::set<std::string, std::less<>> exact;
    bool documents = false;  // every policy document

    [[nodiscard]] bool concern(std::string_view name) const;
  };

  WatchList(base::Descriptor inotify, std::vector<std::string> paths)
      : inotify_(std::move(inotify)), paths_(std::move(paths)) {}

  void watch_again();
  void watch_path(const std::string& path);
  // The names watched in the folder; nullptr if it cannot be watched.
  Names* watch(const std::string& folder);
  void watch_name(const std::string& folder, std::string_view name);
  [[nodiscard]] bool concerns(int watch, unsigned mask, std::string_view name) const;

  base::Descriptor inotify_;
  std::vector<std::string> paths_;
  std::map<int, Names> watches_;
  bool complete_ = true;
};

}  // namespace headgate::server

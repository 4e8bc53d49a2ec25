// The folder with everything that a server keeps on disk, locked for as long as the server runs.
#pragma once

#include <string>

#include "base/descriptor.h"
#include "headgate/result.h"

namespace headgate::state {

class DataFolder {
 public:
  // Makes the folder if it is missing, and locks it: an Error if another server has. A folder that is made here is
  // closed to other users, since it holds hashes of tokens and the audit log. One that exists keeps its mode, since
  // another program may use it too; the files of the server are closed in either case.
  [[nodiscard]] static Result<DataFolder> open(const std::string& path);

  // The mode, as "0755", of a folder that other users may look into; empty: they may not.
  [[nodiscard]] const std::string& open_mode() const noexcept { return open_mode_; }
  // An Error if the database is missing or empty beside files of an earlier start: starting without it would lose
  // tokens, overrides and policies silently.
  [[nodiscard]] Result<void> check_database(const std::string& database) const;
  // Writes into the lock where the server listens, by which the command line finds it. False: it cannot be written.
  [[nodiscard]] bool announce(const std::string& address) const;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  DataFolder(std::string path, std::string open_mode) : path_(std::move(path)), open_mode_(std::move(open_mode)) {}
  [[nodiscard]] Result<void> lock();

  std::string path_;
  std::string open_mode_;
  base::Descriptor lock_;
};

}  // namespace headgate::state

// Files of a few kilobytes, read and written whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/result.h"

namespace headgate::base {

// The first `most` bytes of a regular file; none if there is no such file. Never waits, whatever the path leads to.
[[nodiscard]] Result<std::optional<std::string>> read_start(const std::string& path, std::size_t most);

// Writes beside its place, syncs, and renames over it: a reader finds the old file or the new one, whole, through any
// crash. The file is for its owner alone. Calls from several threads take turns.
[[nodiscard]] Result<void> write_whole(const std::string& path, std::string_view bytes);

}  // namespace headgate::base

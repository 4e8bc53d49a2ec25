// How many connections the limit of open files leaves room for.
#pragma once

#include <cstddef>

#include "headgate/result.h"

namespace headgate::net {

struct OpenFiles {
  std::size_t connections = 0;  // that fit
  std::size_t needed = 0;       // files for all that were wanted
  std::size_t allowed = 0;      // files
};

// Each connection is an open file, and shells start programs with room for about a thousand. Raises the limit of this
// process as far as it may. An Error: the server's own files would leave no connection for the emergency throttle.
[[nodiscard]] Result<OpenFiles> make_room_for(std::size_t connections);

}  // namespace headgate::net

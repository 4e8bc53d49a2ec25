// What the tables of the database are, and how older ones become these.
#pragma once

#include <SQLiteCpp/Database.h>

#include <string>

#include "headgate/result.h"

namespace headgate::state {

// "HGDB", in the header of every file of ours.
inline constexpr int kApplicationId = 0x48474442;

// The number of migrations there are; PRAGMA user_version of a file that is up to date.
[[nodiscard]] int schema_version() noexcept;

// Looks at the bytes of the file alone, so that one which is not ours is not even opened. A file that is missing or
// empty is fine: it will be made.
[[nodiscard]] Result<void> check_header(const std::string& path);

// Runs the migrations that are missing, each whole or not at all. May throw SQLite::Exception.
[[nodiscard]] Result<void> migrate(SQLite::Database& database, const std::string& path);

}  // namespace headgate::state

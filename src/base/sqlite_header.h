// What the first bytes of an SQLite file tell, so that one which is not ours is not even opened.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "headgate/result.h"

namespace headgate::base {

struct SqliteHeader {
  std::uint32_t application = 0;  // PRAGMA application_id
  std::uint32_t version = 0;      // PRAGMA user_version
};

// nullopt: it is missing or empty. An Error: it cannot be read, or is something else. What is still in the write-ahead
// log is not seen.
[[nodiscard]] inline Result<std::optional<SqliteHeader>> read_sqlite_header(const std::string& path) {
  // As https://www.sqlite.org/fileformat.html has it.
  constexpr std::string_view kMagic{"SQLite format 3\0", 16};
  constexpr std::size_t kHeaderBytes = 100;
  constexpr std::size_t kVersionAt = 60;
  constexpr std::size_t kApplicationAt = 68;

  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT) return std::optional<SqliteHeader>{};
    return Error{ErrorCode::kIo, path + ": cannot be read: " + std::strerror(errno)};
  }
  std::array<char, kHeaderBytes> header{};
  file.read(header.data(), header.size());
  const auto got = static_cast<std::size_t>(file.gcount());
  if (got == 0) return std::optional<SqliteHeader>{};
  if (got < header.size() || std::string_view(header.data(), kMagic.size()) != kMagic) {
    return Error{ErrorCode::kCorrupt,
                 path + ": is not an SQLite database; move it away or give another path (it was left alone)"};
  }
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(header[at + i]);
    return value;
  };
  return std::optional(SqliteHeader{word(kApplicationAt), word(kVersionAt)});
}

}  // namespace headgate::base

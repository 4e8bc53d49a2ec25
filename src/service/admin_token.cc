#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/small_file.h"
#include "service/access.h"
#include "state/secret.h"

namespace headgate::service {
namespace {

// Which token the file holds is remembered here, so that the token of a file that was lost can be revoked.
constexpr const char* kSection = "server";
constexpr const char* kKey = "admin_token";
constexpr std::size_t kMostBytes = 1'000;

std::string remembered(const state::Database& database) {
  for (const state::Setting& setting : database.settings(kSection)) {
    if (setting.key == kKey) return setting.value.value_or("");
  }
  return {};
}

std::string without_line_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

Result<void> keep_private(const std::string& path) {
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) == 0) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot be made private: {}", path, std::strerror(errno))};
}

Result<void> write_new(state::Database& database, const std::string& path, Nanos now) {
  const std::string old = remembered(database);
  auto made = database.create_token({.role = state::Role::kAdmin, .agent = "", .name = "admin.token"}, "server", now);
  if (!made) return made.error();
  if (auto written = base::write_whole(path, made->secret + "\n"); !written) {
    (void)database.revoke_token(made->token.id, "server", now);  // it was given to no one
    return written;
  }
  state::AuditEntry entry;
  entry.time = now;
  entry.who = "server";
  entry.action = "token.file";
  entry.target = made->token.id;
  const std::array<state::Setting, 1> settings{{{kSection, kKey, made->token.id}}};
  if (auto changed = database.change(settings, entry); !changed) return changed;
  if (!old.empty()) {
    if (auto revoked = database.revoke_token(old, "server", now); !revoked) return revoked.error();
  }
  return {};
}

}  // namespace

Result<std::string> ensure_admin_token(state::Database& database, const std::string& data, Nanos now) {
  const std::string path = data + "/admin.token";
  auto file = base::read_start(path, kMostBytes);
  if (!file) return file.error();
  if (*file) {
    const auto token = database.identify(without_line_end(**file), now);
    if (token && token->role == state::Role::kAdmin) {
      if (auto kept = keep_private(path); !kept) return kept.error();
      return path;
    }
  }
  if (auto written = write_new(database, path, now); !written) return written.error();
  return path;
}

}  // namespace headgate::service

// The rows of each table. Every call is a part of its caller's transaction, and may throw SQLite::Exception.
//
// Internal to src/state.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "state/database.h"
#include "state/token_table.h"

namespace headgate::state {

// Oldest first.
[[nodiscard]] std::vector<HashedToken> read_tokens(SQLite::Database& file);
void insert_token(SQLite::Database& file, const HashedToken& token);
void delete_token(SQLite::Database& file, const std::string& id);
void delete_tokens_expired_by(SQLite::Database& file, Nanos instant);

using SettingsBySection = std::map<std::string, std::map<std::string, std::string>, std::less<>>;  // then by key
[[nodiscard]] SettingsBySection read_settings(SQLite::Database& file);
void put_settings(SQLite::Database& file, std::span<const Setting> settings);

// Older entries than `most` go, in small steps.
void insert_audit(SQLite::Database& file, const AuditEntry& entry, std::size_t most);
[[nodiscard]] std::vector<AuditEntry> read_audit(SQLite::Database& file, const AuditQuery& query);

// The id of the newest version that there ever was; 0: there was none.
[[nodiscard]] std::int64_t last_version_id(SQLite::Database& file);
// Keeps the newest kMostVersions, and of these as many as have `most_bytes` of text; the newest in any case.
void insert_version(SQLite::Database& file, const PolicyVersion& version, std::size_t most_bytes);
// Newest first, without their text.
[[nodiscard]] std::vector<PolicyVersion> read_versions(SQLite::Database& file, std::int64_t before, std::size_t limit);
[[nodiscard]] std::optional<PolicyVersion> read_version(SQLite::Database& file, std::int64_t id);

}  // namespace headgate::state

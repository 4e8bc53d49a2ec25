// What a server must not forget, in one SQLite file: tokens, the audit log, policy versions, and what operators have
// set.
//
// Safe for concurrent use. identify(), tokens() and settings() answer from memory. A change takes effect in memory
// first and goes to disk by a thread of the database: while the disk refuses, the change is in force, is tried again
// every second, and a later change of the same setting takes its place. A crash before it is on disk forgets it, so the
// caller hears whether it is. Only a new token is on disk before it is good. One process at a time: another that writes
// the same file is not seen.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/durability.h"
#include "headgate/clock.h"
#include "headgate/result.h"
#include "state/tokens.h"

namespace headgate::state {

struct AuditEntry {
  std::int64_t id = 0;  // given by the database
  Nanos time{0};
  std::string who;     // a token's name or id, "cli", "signal", "files", "load"
  std::string action;  // "override.set", "emergency.on", "policies.replace", ...
  std::string target;  // agent, policy id, token id
  std::string before;  // JSON; empty: nothing
  std::string after;
};

struct PolicyVersion {
  std::int64_t id = 0;
  Nanos time{0};
  std::string who;
  std::string source;  // "files", "api", "rollback"
  std::string note;
  std::string text;  // the whole document as it was put in force
};

struct AuditQuery {
  std::size_t limit = 100;
  std::int64_t before = 0;  // entries with a smaller id; 0: from the newest
  std::string action{};     // empty: all; "override." all that begin so
};

// One setting: a section ("override", "exempt", "emergency", "tiers", "policy"), a key in it, a JSON value.
struct Setting {
  std::string section;
  std::string key;
  std::optional<std::string> value;  // nullopt: remove it
};

// How much is kept. At the bound of tokens no further one is made; older entries and versions make room by themselves.
struct DatabaseBounds {
  std::size_t tokens = 10'000;            // when there are so many, expired ones go first
  std::size_t audit_entries = 100'000;    // the newest; the others go in small steps
  std::size_t version_bytes = 256 << 20;  // of all texts together; the newest version is always kept
};
// What may wait for a disk that refuses. Past the bound the oldest entries and versions are dropped; the audit log then
// tells how many entries. Settings and revoked tokens are never dropped.
inline constexpr std::size_t kMaxPendingEntries = 1'000;
inline constexpr std::size_t kMaxPendingVersions = 16;
inline constexpr std::size_t kMostVersions = 200;
// What an audit entry's before or after may hold; of a longer one only the length is kept: {"omitted_bytes": 70000}.
inline constexpr std::size_t kMaxAuditBytes = 64 << 10;

class Database : public Tokens {
 public:
  // Made if it is not there; brought up to date if it is older. One that is newer than this program, or not a database
  // of ours, is refused and left alone. ":memory:" for tests. The file is for its owner alone; its folder must exist.
  // A change survives a crash of the server with either durability; one of the machine with kSync at once, and with
  // kAsync when the operating system next writes its pages.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path,
                                                              const DatabaseBounds& bounds = {},
                                                              base::Durability durability = base::Durability::kSync);
  // Hears of every setting that is changed from now on, when it is in force, from the thread that changed it. It must
  // not call the database.
  using Listener = std::function<void(std::span<const Setting>)>;
  virtual void listen(Listener listener) = 0;
  // Hears when the disk begins to refuse changes (the error) and when all of them are kept (nullptr), from the
  // database's own thread. It must not call the database.
  using Trouble = std::function<void(const Error*)>;
  virtual void on_trouble(Trouble trouble) = 0;

  // All of these settings and the entry, together.
  virtual void change(std::span<const Setting> settings, const AuditEntry& entry, Kept kept) = 0;
  [[nodiscard]] Result<void> change(std::span<const Setting> settings, const AuditEntry& entry);
  // Without an entry: for notes of the server itself, which no operator has set.
  virtual void note(std::span<const Setting> settings, Kept kept) = 0;
  [[nodiscard]] Result<void> note(std::span<const Setting> settings);
  [[nodiscard]] virtual std::vector<Setting> settings(std::string_view section) const = 0;

  // Newest first; what is not on disk yet is left out. This and the reads below wait for the disk.
  [[nodiscard]] virtual Result<std::vector<AuditEntry>> audit(const AuditQuery& query) const = 0;

  // Keeps the newest kMostVersions. Together with settings and an audit entry. Returns its id, one more than the last.
  virtual std::int64_t add_version(const PolicyVersion& version, std::span<const Setting> settings,
                                   const AuditEntry& entry, Kept kept) = 0;
  [[nodiscard]] Result<std::int64_t> add_version(const PolicyVersion& version, std::span<const Setting> settings,
                                                 const AuditEntry& entry);
  // Newest first, without their text.
  [[nodiscard]] virtual Result<std::vector<PolicyVersion>> versions(std::size_t limit) const = 0;
  [[nodiscard]] virtual Result<std::optional<PolicyVersion>> version(std::int64_t id) const = 0;

  // Can it still be written to? Only after something has failed does it try a real write. Waits for the disk.
  [[nodiscard]] virtual Result<void> ping() const = 0;
  struct Health {
    std::string problem{};   // what the last write, or the last ping of each second, ran into; empty: nothing
    std::size_t unkept = 0;  // changes that are in force but not on disk
  };
  // As last seen; waits for nothing.
  [[nodiscard]] virtual Health health() const = 0;
};

}  // namespace headgate::state

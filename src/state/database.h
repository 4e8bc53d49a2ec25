// What a server must not forget, in one SQLite file: tokens, the audit log, policy versions, and what operators have
// set.
//
// Safe for concurrent use. identify(), tokens() and settings() answer from memory. A change takes effect in memory
// first and goes to disk by a thread of the database: while the disk refuses, the change is in force, is tried again
// every second, and a later change of the same setting takes its place. A crash before it is on disk forgets it, so the
// caller hears whether it is. Only a new token is on disk before it is good. One process at a time: another that writes
// the same file is not seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"
#include "headgate/result.h"
#include "state/expiry.h"

namespace headgate::state {

// An agent asks for itself; a gateway asks for others (any subject, plan, priority, parent, refunds) and manages
// nothing; a viewer may look; an admin may do everything.
enum class Role : std::uint8_t { kAgent, kGateway, kViewer, kAdmin };
[[nodiscard]] const char* to_string(Role role) noexcept;
[[nodiscard]] std::optional<Role> role_of(std::string_view text) noexcept;

// Names that belong to the tokens that bind them: a token that binds none of a kind may not claim these.
enum class Bound : std::uint8_t { kAgent, kUser, kTenant };
inline constexpr int kBoundKinds = 3;

// Times are wall clock throughout.
struct Token {
  std::string id;  // public: names it in lists and in the audit log
  Role role = Role::kAgent;
  // The only ones that it speaks for; empty: it binds none of that kind. Roles agent and gateway only.
  std::string agent{};
  std::string user{};
  std::string tenant{};
  std::string plan{};
  std::string name;  // for people
  Nanos created{0};
  Nanos expires{0};          // 0: never
  std::uint64_t number = 0;  // stands for it while the server runs; given by the database
};
struct NewToken {
  Token token;
  std::string secret;  // "hg_" and 256 random bits; shown once, kept nowhere
};

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

// One setting: a section ("override", "exempt", "emergency", "tiers", "policy"), a key in it, a JSON value.
struct Setting {
  std::string section;
  std::string key;
  std::optional<std::string> value;  // nullopt: remove it
};

// How much is kept. At the bound of tokens no further one is made; older entries and versions make room by themselves.
// When a change is safe: at once from a crash of the server in either case; from a crash of the machine at once with
// kSync, and with kAsync when the operating system next writes its pages.
enum class Durability : std::uint8_t { kAsync, kSync };

struct DatabaseBounds {
  std::size_t tokens = 10'000;            // when there are so many, expired ones go first
  std::size_t audit_entries = 100'000;    // the newest; the others go in small steps
  std::size_t version_bytes = 256 << 20;  // of all texts together; the newest version is always kept
};
inline constexpr std::size_t kMaxTokenNameBytes = 200;
// What may wait for a disk that refuses. Past the bound the oldest entries and versions are dropped; the audit log then
// tells how many entries. Settings and revoked tokens are never dropped.
inline constexpr std::size_t kMaxPendingEntries = 1'000;
inline constexpr std::size_t kMaxPendingVersions = 16;
// What an audit entry's before or after may hold; of a longer one only the length is kept: {"omitted_bytes": 70000}.
inline constexpr std::size_t kMaxAuditBytes = 64 << 10;

class Database {
 public:
  // Made if it is not there; brought up to date if it is older. One that is newer than this program, or not a database
  // of ours, is refused and left alone. ":memory:" for tests. The file is for its owner alone; its folder must exist.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path,
                                                              const DatabaseBounds& bounds = {},
                                                              Durability durability = Durability::kSync);
  virtual ~Database() = default;

  struct TokenRequest {
    Role role = Role::kAgent;
    std::string agent{};
    std::string user{};
    std::string tenant{};
    std::string plan{};
    std::string name{};
    Nanos ttl{0};  // 0: for good
  };
  // Each is told once: by the database's own thread, or for ":memory:" before the call returns. It must not wait for
  // the database. An Error of Kept: the change is in force, but not on disk yet.
  using Kept = std::function<void(const Result<void>&)>;
  using Made = std::function<void(const Result<NewToken>&)>;
  virtual void create_token(const TokenRequest& request, const std::string& by, Nanos now, Made made) = 0;
  // The same, but waits for it; so do the others of this name. Not for threads that serve connections.
  [[nodiscard]] Result<NewToken> create_token(const TokenRequest& request, const std::string& by, Nanos now);
  // Who has this secret; nullopt: nobody, or it has expired. Compares hashes in constant time, reads no file.
  [[nodiscard]] virtual std::optional<Token> identify(std::string_view secret, Nanos now) const = 0;
  [[nodiscard]] virtual std::vector<Token> tokens() const = 0;
  // Another number after every change of tokens, never 0. One relaxed load: connections that have identified look at it
  // with every message, and at has_token() only when it has changed.
  [[nodiscard]] std::uint64_t token_version() const noexcept {
    return token_word_.load(std::memory_order_relaxed) >> kBoundKinds;
  }
  // Whether a token with that expiry (0: none) has expired. One that was found to have expired stays so while the
  // process runs, also if the clock is set back.
  [[nodiscard]] bool has_expired(Nanos expires, Nanos now) const noexcept { return expiry_.is_over(expires, now); }
  // Whether there still is the token of that number. Expiry is not looked at. Takes no lock.
  [[nodiscard]] virtual bool has_token(std::uint64_t number) const = 0;
  // Whether any token binds a name of that kind. One relaxed load.
  [[nodiscard]] bool binds_any(Bound kind) const noexcept {
    return (token_word_.load(std::memory_order_relaxed) >> static_cast<int>(kind) & 1U) != 0;
  }
  // Whether a token that has not expired binds that name. Takes no lock.
  [[nodiscard]] virtual bool is_bound(Bound kind, std::string_view name, Nanos now) const = 0;
  // False: there is none of that id, and `kept` is not told.
  virtual bool revoke_token(const std::string& id, const std::string& by, Nanos now, Kept kept) = 0;
  [[nodiscard]] Result<bool> revoke_token(const std::string& id, const std::string& by, Nanos now);

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
  // Without an entry: what a server notes for itself, and nobody has set.
  virtual void note(std::span<const Setting> settings, Kept kept) = 0;
  [[nodiscard]] Result<void> note(std::span<const Setting> settings);
  [[nodiscard]] virtual std::vector<Setting> settings(std::string_view section) const = 0;

  struct AuditQuery {
    std::size_t limit = 100;
    std::int64_t before = 0;  // entries with a smaller id; 0: from the newest
    std::string action{};     // empty: all; "override." all that begin so
  };
  // Newest first; what is not on disk yet is left out. This and the reads below wait for the disk.
  [[nodiscard]] virtual Result<std::vector<AuditEntry>> audit(const AuditQuery& query) const = 0;

  // Keeps the newest kMostVersions. Together with settings and an audit entry. Returns its id, one more than the last.
  static constexpr std::size_t kMostVersions = 200;
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

 protected:
  // The version of the tokens, and below it a bit for each kind of name that some token binds.
  std::atomic<std::uint64_t> token_word_{std::uint64_t{1} << kBoundKinds};
  mutable Expiry expiry_;
};

}  // namespace headgate::state

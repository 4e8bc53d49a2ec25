// Tokens: who may call the server, and for whom.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
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

inline constexpr std::size_t kMaxTokenNameBytes = 200;

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

// All tokens of a server. Safe for concurrent use; all but creating and revoking answers from memory.
class Tokens {
 public:
  virtual ~Tokens() = default;

  struct TokenRequest {
    Role role = Role::kAgent;
    std::string agent{};
    std::string user{};
    std::string tenant{};
    std::string plan{};
    std::string name{};
    Nanos ttl{0};  // 0: it never expires
  };
  // Each is called once: by the database's own thread, or for ":memory:" before the call returns. It must not wait for
  // the database. An Error of Kept: the change is in force, but not on disk yet.
  using Kept = std::function<void(const Result<void>&)>;
  using Made = std::function<void(const Result<NewToken>&)>;
  // A new token is on disk before it is valid.
  virtual void create_token(const TokenRequest& request, const std::string& by, Nanos now, Made made) = 0;
  // The same, but waits for it. Not for threads that serve connections.
  [[nodiscard]] Result<NewToken> create_token(const TokenRequest& request, const std::string& by, Nanos now);
  // False: there is none of that id, and `kept` is not called.
  virtual bool revoke_token(const std::string& id, const std::string& by, Nanos now, Kept kept) = 0;
  [[nodiscard]] Result<bool> revoke_token(const std::string& id, const std::string& by, Nanos now);

  // The token with this secret; nullopt: there is none, or it has expired. Compares hashes in constant time, reads no
  // file.
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

 protected:
  // The version of the tokens, and below it a bit for each kind of name that some token binds.
  std::atomic<std::uint64_t> token_word_{std::uint64_t{1} << kBoundKinds};
  mutable Expiry expiry_;
};

}  // namespace headgate::state

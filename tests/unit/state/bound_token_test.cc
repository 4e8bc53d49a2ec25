// Tokens that bind names: kept, brought over from an older file, looked up without a lock.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include "state/database.h"
#include "support/cells.h"

namespace headgate::state {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kBoundNow = 1'000'000s;

std::unique_ptr<Database> bound_database(const std::string& path) {
  auto opened = Database::open(path);
  EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
  return opened ? std::move(opened).value() : nullptr;
}

TEST(BoundToken, IsKeptWithAllThatItBinds) {
  const test::TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string secret;
  {
    auto made = bound_database(path)->create_token(
        {.role = Role::kGateway, .agent = "a", .user = "u", .tenant = "t", .plan = "p"}, "me", kBoundNow);
    ASSERT_TRUE(made.has_value());
    secret = made->secret;
  }
  const auto again = bound_database(path);
  const auto token = again->identify(secret, kBoundNow);
  ASSERT_TRUE(token.has_value());
  EXPECT_EQ(token->role, Role::kGateway);
  EXPECT_EQ(token->agent + token->user + token->tenant + token->plan, "autp");
  EXPECT_TRUE(again->is_bound(Bound::kTenant, "t", kBoundNow));
  EXPECT_FALSE(again->is_bound(Bound::kTenant, "u", kBoundNow));
  EXPECT_TRUE(again->has_token(token->number));
}

TEST(BoundToken, BindsUntilItExpiresOrIsRevoked) {
  const auto database = bound_database(":memory:");
  EXPECT_FALSE(database->binds_any(Bound::kUser));
  const std::uint64_t first = database->token_version();
  ASSERT_TRUE(database->create_token({.user = "u", .ttl = 10s}, "me", kBoundNow).has_value());
  EXPECT_NE(database->token_version(), first);
  EXPECT_TRUE(database->binds_any(Bound::kUser));
  EXPECT_FALSE(database->binds_any(Bound::kAgent));
  EXPECT_TRUE(database->is_bound(Bound::kUser, "u", kBoundNow + 9s));
  EXPECT_FALSE(database->is_bound(Bound::kUser, "u", kBoundNow + 10s));
  const auto lasting = database->create_token({.user = "u"}, "me", kBoundNow);
  ASSERT_TRUE(lasting.has_value());
  EXPECT_TRUE(database->is_bound(Bound::kUser, "u", kBoundNow + 10s)) << "by the one that lasts";
  ASSERT_TRUE(database->revoke_token(lasting->token.id, "me", kBoundNow));
  EXPECT_FALSE(database->is_bound(Bound::kUser, "u", kBoundNow + 10s));
}

TEST(BoundToken, TokensOfAnOlderFileBindTheirAgentAlone) {
  const test::TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string secret;
  {
    auto made = bound_database(path)->create_token({.agent = "A", .name = "old"}, "me", kBoundNow);
    ASSERT_TRUE(made.has_value());
    secret = made->secret;
  }
  // As the first version of the tables had it.
  SQLite::Database(path, SQLite::OPEN_READWRITE).exec(R"sql(
CREATE TABLE old_token (id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  role TEXT NOT NULL CHECK (role IN ('agent', 'viewer', 'admin')), agent TEXT NOT NULL, name TEXT NOT NULL,
  created INTEGER NOT NULL, expires INTEGER NOT NULL) STRICT;
INSERT INTO old_token SELECT id, hash, role, agent, name, created, expires FROM token;
DROP TABLE token;
ALTER TABLE old_token RENAME TO token;
PRAGMA user_version = 1;
)sql");
  const auto again = bound_database(path);
  ASSERT_NE(again, nullptr);
  const auto token = again->identify(secret, kBoundNow);
  ASSERT_TRUE(token.has_value());
  EXPECT_EQ(token->agent, "A");
  EXPECT_EQ(token->name, "old");
  EXPECT_EQ(token->user + token->tenant + token->plan, "");
  EXPECT_TRUE(again->create_token({.role = Role::kGateway}, "me", kBoundNow).has_value());
}

}  // namespace
}  // namespace headgate::state

// The database over a real SQLite: in memory where the file does not matter, else in a folder that goes away.
#include "state/database.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "state/pending.h"
#include "state/schema.h"
#include "state/secret.h"
#include "support/cells.h"

namespace headgate::state {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr Nanos kNow = 1'000'000s;

std::unique_ptr<Database> open_at(const std::string& path, const DatabaseBounds& bounds = {}) {
  auto opened = Database::open(path, bounds);
  EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().message);
  return opened ? std::move(opened).value() : nullptr;
}

using test::read_bytes;

Database::TokenRequest request(Role role, std::string agent = "", std::string name = "", Nanos ttl = 0s) {
  return {.role = role, .agent = std::move(agent), .name = std::move(name), .ttl = ttl};
}

AuditEntry entry(std::string action, std::string target = "x") {
  AuditEntry made;
  made.time = kNow;
  made.who = "tester";
  made.action = std::move(action);
  made.target = std::move(target);
  return made;
}

TEST(Secret, IsThirtyTwoRandomBytesInHexadecimal) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string secret = new_token_secret();
    EXPECT_EQ(secret.size(), 3U + 64U);
    EXPECT_TRUE(looks_like_token(secret)) << secret;
    EXPECT_TRUE(seen.insert(secret).second);
  }
}

TEST(Secret, HashesAsSha256Does) {
  const Sha256 hash = sha256("abc");
  std::string hex;
  for (const std::uint8_t byte : hash) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 other = hash;
  EXPECT_TRUE(equal(hash, other));
  other[31] ^= 1;
  EXPECT_FALSE(equal(hash, other));
}

TEST(Database, KnowsATokenByItsSecretAndKeepsOnlyTheHash) {
  const test::TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string secret;
  {
    const auto database = open_at(path);
    auto made = database->create_token(request(Role::kAgent, "A", "ci"), "tester", kNow);
    ASSERT_TRUE(made.has_value());
    secret = made->secret;
    const auto known = database->identify(secret, kNow);
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(known->id, made->token.id);
    EXPECT_EQ(known->role, Role::kAgent);
    EXPECT_EQ(known->agent, "A");
    EXPECT_EQ(known->name, "ci");
    EXPECT_EQ(known->created, kNow);
  }
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(read_bytes(file.path()).find(secret), std::string::npos) << file.path();
  }
  const auto again = open_at(path);
  ASSERT_TRUE(again->identify(secret, kNow).has_value()) << "after a restart";
  EXPECT_EQ(again->identify(secret, kNow)->agent, "A");
  ASSERT_EQ(again->tokens().size(), 1U);
}

TEST(Database, KnowsNobodyByAnythingElse) {
  const auto database = open_at(":memory:");
  auto made = database->create_token(request(Role::kAdmin), "tester", kNow);
  ASSERT_TRUE(made.has_value());
  std::string secret = made->secret;
  EXPECT_FALSE(database->identify("", kNow));
  EXPECT_FALSE(database->identify("hg_", kNow));
  EXPECT_FALSE(database->identify(secret + "0", kNow));
  EXPECT_FALSE(database->identify(secret.substr(3), kNow));
  EXPECT_FALSE(database->identify(made->token.id, kNow));
  secret.back() = secret.back() == '0' ? '1' : '0';
  EXPECT_FALSE(database->identify(secret, kNow));
}

TEST(Database, TokenEndsWhenItExpires) {
  const auto database = open_at(":memory:");
  auto made = database->create_token(request(Role::kViewer, "", "", 10s), "tester", kNow);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->token.expires, kNow + 10s);
  EXPECT_TRUE(database->identify(made->secret, kNow + 10s - 1ns));
  EXPECT_FALSE(database->identify(made->secret, kNow + 10s));
}

TEST(Database, RevokingATokenTakesEffectAtOnceAndForGood) {
  const test::TempFolder folder;
  std::string secret;
  {
    const auto database = open_at(folder.file("a.db"));
    auto made = database->create_token(request(Role::kAdmin), "tester", kNow);
    ASSERT_TRUE(made.has_value());
    secret = made->secret;
    auto other = database->revoke_token("tok_unknown", "tester", kNow);
    ASSERT_TRUE(other.has_value());
    EXPECT_FALSE(*other);
    auto revoked = database->revoke_token(made->token.id, "tester", kNow);
    ASSERT_TRUE(revoked.has_value());
    EXPECT_TRUE(*revoked);
    EXPECT_FALSE(database->identify(secret, kNow));
    EXPECT_TRUE(database->tokens().empty());
  }
  EXPECT_FALSE(open_at(folder.file("a.db"))->identify(secret, kNow));
}

TEST(Database, AnExpiredTokenStaysSoWhenTheClockIsSetBack) {
  const auto database = open_at(":memory:");
  const auto expiring = database->create_token(request(Role::kAgent, "A", "", 10s), "tester", kNow);
  const auto later = database->create_token(request(Role::kAgent, "B", "", 20s), "tester", kNow);
  EXPECT_FALSE(database->identify(expiring->secret, kNow + 10s));
  EXPECT_FALSE(database->identify(expiring->secret, kNow));
  EXPECT_FALSE(database->is_bound(Bound::kAgent, "A", kNow));
  EXPECT_TRUE(database->identify(later->secret, kNow));
}

TEST(Database, AuditsWhoMadeAndRevokedATokenButNotItsSecret) {
  const auto database = open_at(":memory:");
  auto made = database->create_token(request(Role::kAgent, "A", "n\"1"), "ann", kNow);
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(database->revoke_token(made->token.id, "bob", kNow + 1s).has_value());
  const auto entries = database->audit({}).value();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].action, "token.revoke");
  EXPECT_EQ(entries[0].who, "bob");
  EXPECT_EQ(entries[0].time, kNow + 1s);
  EXPECT_EQ(entries[1].action, "token.create");
  EXPECT_EQ(entries[1].target, made->token.id);
  EXPECT_EQ(entries[1].after, R"({"role":"agent","agent":"A","name":"n\"1"})");
  EXPECT_EQ(entries[0].before, entries[1].after);
}

TEST(Database, RefusesTokensThatCannotBe) {
  const auto database = open_at(":memory:");
  const auto message = [&](const Database::TokenRequest& asked) {
    auto made = database->create_token(asked, "tester", kNow);
    return made ? "made" : made.error().message;
  };
  EXPECT_EQ(message(request(Role::kAgent, "", std::string(201, 'n'))),
            "name must be at most 200 bytes of text without control characters, got 201 bytes");
  EXPECT_THAT(message(request(Role::kAgent, "", "a\nb")), HasSubstr("name must be"));
  EXPECT_THAT(message(request(Role::kAgent, "a\x1b")), HasSubstr("agent must be"));
  EXPECT_EQ(message(request(Role::kAdmin, "A")), "agent goes with roles agent and gateway only, got role admin");
  EXPECT_EQ(message(request(Role::kAdmin, "", "", -1s)), "a token must expire in the future, or never (0)");
  EXPECT_EQ(message(request(Role::kAdmin, "", "", kMaxTime)), "a token must expire in the future, or never (0)");
  EXPECT_TRUE(database->tokens().empty());
  EXPECT_TRUE(database->audit({})->empty());
}

TEST(Database, KeepsSoManyTokensAndDropsExpiredOnesFirst) {
  const auto database = open_at(":memory:", {.tokens = 2});
  ASSERT_TRUE(database->create_token(request(Role::kAdmin, "", "short", 10s), "t", kNow).has_value());
  ASSERT_TRUE(database->create_token(request(Role::kAdmin, "", "long"), "t", kNow).has_value());
  auto third = database->create_token(request(Role::kAdmin), "t", kNow + 9s);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().message, "there may be at most 2 tokens; revoke some first");
  ASSERT_TRUE(database->create_token(request(Role::kAdmin, "", "third"), "t", kNow + 10s).has_value());
  const auto left = database->tokens();
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].name, "long");
  EXPECT_EQ(left[1].name, "third");
}

TEST(Database, ConcurrentReadersSeeATokenWholeOrNotAtAll) {
  const auto database = open_at(":memory:");
  auto kept = database->create_token(request(Role::kAgent, "kept"), "t", kNow);
  ASSERT_TRUE(kept.has_value());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto found = database->identify(kept->secret, kNow);
        if (!found || found->agent != "kept") ++wrong;
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    auto made = database->create_token(request(Role::kAgent, "other"), "t", kNow);
    ASSERT_TRUE(made.has_value());
    EXPECT_TRUE(database->identify(made->secret, kNow));
    ASSERT_TRUE(database->revoke_token(made->token.id, "t", kNow).has_value());
    EXPECT_FALSE(database->identify(made->secret, kNow));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Database, KeepsSettingsOverARestart) {
  const test::TempFolder folder;
  {
    const auto database = open_at(folder.file("a.db"));
    const std::vector<Setting> settings{
        {"override", "A", R"({"light":1})"}, {"override", "B", "{}"}, {"tiers", "x", "1"}};
    ASSERT_TRUE(database->change(settings, entry("override.set")).has_value());
    const std::vector<Setting> later{{"override", "B", std::nullopt}, {"override", "A", "2"}};
    ASSERT_TRUE(database->change(later, entry("override.clear")).has_value());
    EXPECT_EQ(database->settings("override").size(), 1U);
  }
  const auto database = open_at(folder.file("a.db"));
  const auto left = database->settings("override");
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].section, "override");
  EXPECT_EQ(left[0].key, "A");
  EXPECT_EQ(left[0].value, "2");
  EXPECT_EQ(database->settings("tiers").size(), 1U);
  EXPECT_TRUE(database->settings("over").empty());
  EXPECT_EQ(database->audit({})->size(), 2U);
}

TEST(Database, AuditIsNewestFirstAndPagesByIdAndAction) {
  const auto database = open_at(":memory:");
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(database->change({}, entry(i % 2 == 0 ? "override.set" : "overrides", std::to_string(i))).has_value());
  }
  const auto newest = database->audit({.limit = 2}).value();
  ASSERT_EQ(newest.size(), 2U);
  EXPECT_EQ(newest[0].target, "4");
  const auto next = database->audit({.limit = 2, .before = newest[1].id}).value();
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].target, "2");
  EXPECT_EQ(database->audit({.action = "override."})->size(), 3U);
  EXPECT_EQ(database->audit({.action = "override"})->size(), 5U);
  EXPECT_EQ(database->audit({.action = "%"})->size(), 0U) << "no pattern";
}

TEST(Database, AuditKeepsTheNewestAndOnlyTheLengthOfWhatIsTooLong) {
  const auto database = open_at(":memory:", {.audit_entries = 10});
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(database->change({}, entry("a", std::to_string(i))).has_value());
  const auto left = database->audit({.limit = 1000}).value();
  ASSERT_EQ(left.size(), 10U);
  EXPECT_EQ(left.front().target, "24");
  EXPECT_EQ(left.back().target, "15");
  AuditEntry large = entry("large");
  large.before = std::string(kMaxAuditBytes, 'x');
  large.after = std::string(kMaxAuditBytes + 1, 'x');
  ASSERT_TRUE(database->change({}, large).has_value());
  const auto kept = database->audit({.limit = 1}).value();
  EXPECT_EQ(kept[0].before, large.before);
  EXPECT_EQ(kept[0].after, R"({"omitted_bytes": 65537})");
}

TEST(Database, KeepsTheNewestVersionsWithTheirText) {
  const auto database = open_at(":memory:");
  std::int64_t last = 0;
  for (std::size_t i = 0; i < kMostVersions + 3; ++i) {
    PolicyVersion version;
    version.time = kNow;
    version.who = "ann";
    version.source = "api";
    version.note = fmt::format("note {}", i);
    version.text = fmt::format("policies: [] # {}", i);
    const std::vector<Setting> settings{{"policy", "document", version.text}};
    auto id = database->add_version(version, settings, entry("policies.replace"));
    ASSERT_TRUE(id.has_value());
    EXPECT_GT(*id, last);
    last = *id;
  }
  const auto all = database->versions(1000).value();
  ASSERT_EQ(all.size(), kMostVersions);
  EXPECT_EQ(all[0].id, last);
  EXPECT_EQ(all[0].note, "note 202");
  EXPECT_TRUE(all[0].text.empty());
  const auto newest = database->version(last).value();
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->text, "policies: [] # 202");
  EXPECT_EQ(newest->who, "ann");
  EXPECT_FALSE(database->version(1)->has_value()) << "made room";
  EXPECT_EQ(database->settings("policy")[0].value, newest->text);
}

TEST(Database, VersionsTogetherHaveABoundOfBytesButTheNewestStays) {
  const auto database = open_at(":memory:", {.version_bytes = 100});
  PolicyVersion version;
  for (const std::size_t bytes : {40U, 40U, 40U}) {
    version.text = std::string(bytes, 'x');
    ASSERT_TRUE(database->add_version(version, {}, entry("policies.replace")).has_value());
  }
  EXPECT_EQ(database->versions(10)->size(), 2U);
  version.text = std::string(1000, 'x');
  ASSERT_TRUE(database->add_version(version, {}, entry("policies.replace")).has_value());
  EXPECT_EQ(database->versions(10)->size(), 1U);
}

TEST(Database, IsForItsOwnerAloneAndUsesAWriteAheadLog) {
  const test::TempFolder folder;
  const auto database = open_at(folder.file("a.db"));
  ASSERT_TRUE(database->change({}, entry("a")).has_value());
  for (const char* name : {"a.db", "a.db-wal", "a.db-shm"}) {
    struct stat status {};
    ASSERT_EQ(::stat(folder.file(name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << name;
  }
}

TEST(Database, RefusesANewerFileAndLeavesItAlone) {
  const test::TempFolder folder;
  const std::string path = folder.file("a.db");
  (void)open_at(path);
  SQLite::Database(path, SQLite::OPEN_READWRITE).exec(fmt::format("PRAGMA user_version = {}", schema_version() + 1));
  const std::string before = read_bytes(path);
  auto opened = Database::open(path);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(opened.error().message,
            fmt::format("{}: was written by a newer Headgate (its tables are version {}, this program knows up to {}); "
                        "run that one, or give another database",
                        path, schema_version() + 1, schema_version()));
  EXPECT_EQ(read_bytes(path), before);
}

TEST(Database, RefusesForeignFilesAndLeavesThemAlone) {
  const test::TempFolder folder;
  const std::string path = folder.file("other.db");
  SQLite::Database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE theirs (x)");
  for (const int application : {0, 42}) {
    SQLite::Database(path, SQLite::OPEN_READWRITE).exec(fmt::format("PRAGMA application_id = {}", application));
    const std::string before = read_bytes(path);
    auto opened = Database::open(path);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().message,
              path + ": is a database of another program and was left alone; give another path");
    EXPECT_EQ(read_bytes(path), before);
  }
  const std::string text = folder.file("notes.txt");
  test::write_bytes(text, std::string(5000, 'n'));
  auto opened = Database::open(text);
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("notes.txt: is not an SQLite database"));
  EXPECT_EQ(read_bytes(text), std::string(5000, 'n'));
}

TEST(Database, SaysSoIfTheFileIsDamaged) {
  const test::TempFolder folder;
  const std::string path = folder.file("a.db");
  {
    const auto database = open_at(path);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(database->change({}, entry("a", std::string(200, 'x'))).has_value());
  }
  std::string bytes = read_bytes(path);
  ASSERT_GT(bytes.size(), 20'000U);
  std::fill(bytes.begin() + 4096, bytes.begin() + 20'000, '\x55');
  test::write_bytes(path, bytes);
  auto opened = Database::open(path);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(opened.error().message, HasSubstr("a.db: is damaged"));
  EXPECT_THAT(opened.error().message, HasSubstr("restore it from a backup"));
}

TEST(Database, SaysWhichFolderIsMissing) {
  auto opened = Database::open("/nowhere/at/all.db");
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kIo);
  EXPECT_EQ(opened.error().message, "/nowhere/at/all.db: cannot be opened: No such file or directory");
}

TEST(Database, AChangeIsInForceAtOnceAndOnDiskWhenTheDiskTakesIt) {
  const test::TempFolder folder;
  const std::string path = folder.file("a.db");
  std::string revoked;
  {
    const auto database = open_at(path);
    std::vector<std::string> told;
    database->on_trouble([&](const Error* error) { told.emplace_back(error != nullptr ? "down" : "up"); });
    const auto made = database->create_token(request(Role::kAdmin), "t", kNow);
    ASSERT_TRUE(made.has_value());
    revoked = made->secret;
    SQLite::Database other(path, SQLite::OPEN_READWRITE, 10'000);
    other.exec("CREATE TRIGGER no BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END");
    const std::vector<Setting> settings{{"override", "A", "1"}};
    const auto changed = database->change(settings, entry("a"));
    ASSERT_FALSE(changed.has_value());
    EXPECT_THAT(changed.error().message, HasSubstr("full"));
    EXPECT_EQ(database->settings("override").size(), 1U) << "in force";
    const std::vector<Setting> later{{"override", "A", "2"}};
    EXPECT_FALSE(database->change(later, entry("b")).has_value());
    EXPECT_FALSE(database->revoke_token(made->token.id, "t", kNow).has_value());
    EXPECT_FALSE(database->identify(revoked, kNow)) << "at once";
    PolicyVersion version;
    version.text = "policies: []";
    EXPECT_FALSE(database->add_version(version, {}, entry("c")).has_value());
    EXPECT_EQ(database->versions(10)->size(), 1U) << "also before it is on disk";
    EXPECT_EQ(database->version(1).value()->text, "policies: []");
    EXPECT_EQ(other.execAndGet("SELECT count(*) FROM setting").getInt(), 0);
    EXPECT_FALSE(database->create_token(request(Role::kAdmin), "t", kNow).has_value()) << "on disk or not at all";
    EXPECT_TRUE(database->tokens().empty());
    EXPECT_EQ(database->health().unkept, 4U);
    EXPECT_THAT(database->health().problem, HasSubstr("full"));
    other.exec("DROP TRIGGER no");
    EXPECT_TRUE(database->note({}).has_value()) << "takes all that waits with it";
    EXPECT_EQ(database->health().unkept, 0U);
    EXPECT_EQ(database->health().problem, "");
    database->on_trouble({});
    EXPECT_EQ(told, (std::vector<std::string>{"down", "up"}));
  }
  const auto again = open_at(path);
  EXPECT_EQ(again->settings("override")[0].value, "2") << "the later one";
  EXPECT_FALSE(again->identify(revoked, kNow));
  EXPECT_EQ(again->versions(10)->size(), 1U);
  const auto entries = again->audit({}).value();
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[0].action, "c");
  EXPECT_EQ(entries[3].action, "a");
}

TEST(Database, AtTheBoundOfWhatWaitsTheOldestEntriesGoAndAreCounted) {
  Pending pending;
  for (std::size_t i = 0; i < kMaxPendingEntries + 3; ++i) pending.add(entry("a", std::to_string(i)));
  EXPECT_EQ(pending.entries.size(), kMaxPendingEntries);
  EXPECT_EQ(pending.entries.front().target, "3");
  EXPECT_EQ(pending.dropped, 3U);
  const Pending written = pending;
  pending.add(entry("b"));
  pending.remove(written);
  ASSERT_EQ(pending.entries.size(), 1U);
  EXPECT_EQ(pending.entries.front().action, "b");
  for (std::int64_t id = 1; id <= static_cast<std::int64_t>(kMaxPendingVersions) + 1; ++id) {
    PolicyVersion version;
    version.id = id;
    pending.add(std::move(version));
  }
  EXPECT_EQ(pending.versions.size(), kMaxPendingVersions);
  EXPECT_EQ(pending.versions.front().id, 2);
}

TEST(Database, AReadThatFailsIsAnError) {
  const test::TempFolder folder;
  const auto database = open_at(folder.file("a.db"));
  SQLite::Database(folder.file("a.db"), SQLite::OPEN_READWRITE, 10'000)
      .exec("DROP TABLE policy_version; ALTER TABLE audit RENAME TO other");
  EXPECT_FALSE(database->audit({}).has_value());
  EXPECT_FALSE(database->versions(1).has_value());
  EXPECT_FALSE(database->version(1).has_value());
}

TEST(Database, PingFindsThatTheFileIsGone) {
  const test::TempFolder folder;
  const auto database = open_at(folder.file("a.db"));
  EXPECT_TRUE(database->ping().has_value());
  std::filesystem::rename(folder.file("a.db"), folder.file("b.db"));
  auto pinged = database->ping();
  ASSERT_FALSE(pinged.has_value());
  EXPECT_THAT(pinged.error().message, HasSubstr("has been moved or removed while in use"));
  EXPECT_TRUE(open_at(":memory:")->ping().has_value());
}

TEST(Role, ReadsWhatItWrites) {
  for (const Role role : {Role::kAgent, Role::kGateway, Role::kViewer, Role::kAdmin})
    EXPECT_EQ(role_of(to_string(role)), role);
  EXPECT_EQ(role_of("root"), std::nullopt);
  EXPECT_EQ(role_of(""), std::nullopt);
}

}  // namespace
}  // namespace headgate::state

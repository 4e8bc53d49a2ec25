#include "control/emergency.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/utf8.h"
#include "support/cells.h"
#include "unit/control/figures.h"

namespace headgate::control {
namespace {

using namespace std::chrono_literals;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

constexpr Nanos kNow = 1'700'000'000s;

Emergency manual() { return *turn_on({}, {"looping agents", "alice"}, kNow); }
Emergency automatic() { return follow_load({}, {}, 0.95, kNow); }

std::string refusal(const EmergencyOrder& order) {
  const auto on = turn_on({}, order, kNow);
  return on ? "accepted" : on.error().message;
}

TEST(Emergency, TurnedOnByHandSaysWhyWhoAndWhen) {
  const Emergency state = manual();
  EXPECT_TRUE(state.active);
  EXPECT_FALSE(state.automatic);
  EXPECT_EQ(state.reason, "looping agents");
  EXPECT_EQ(state.by, "alice");
  EXPECT_EQ(state.since, kNow);
}

TEST(Emergency, ReasonAndNameAreBoundedAndPlain) {
  EXPECT_EQ(refusal({std::string(500, 'x'), std::string(200, 'x')}), "accepted");
  EXPECT_EQ(refusal({"h\xC3\xA9", "\xE2\x82\xAC \xF0\x9F\x9A\xA8"}), "accepted");
  EXPECT_EQ(refusal({"", "alice"}), "reason must be between 1 and 500 bytes long, got 0");
  EXPECT_EQ(refusal({std::string(501, 'x'), "alice"}), "reason must be between 1 and 500 bytes long, got 501");
  EXPECT_EQ(refusal({"x", std::string(201, 'x')}), "by must be between 1 and 200 bytes long, got 201");
  for (const char* bad : {"a\nb", "\x1b[2J", "\x7f", "\xC2\x85", "\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xE2\x82", "\xFF"}) {
    EXPECT_EQ(refusal({bad, "alice"}), "reason must be UTF-8 without control characters, got others");
  }
  EXPECT_FALSE(base::is_plain_text(std::string_view("\0", 1)));
}

TEST(Emergency, TurnsItselfOnStrictlyOverTheThreshold) {
  EXPECT_FALSE(follow_load({}, {}, 0.9, kNow).active);
  const Emergency on = automatic();
  EXPECT_TRUE(on.active);
  EXPECT_TRUE(on.automatic);
  EXPECT_EQ(on.reason, "load 0.95 is over 0.9");
  EXPECT_EQ(on.by, "headgate");
  EXPECT_EQ(on.since, kNow);
  EXPECT_EQ(follow_load(on, {}, 0.99, kNow + 1s), on) << "it stays on since then";
}

TEST(Emergency, TurnsItselfOffOnlyAMarginBelow) {
  EXPECT_TRUE(follow_load(automatic(), {}, 0.81, kNow).active);
  EXPECT_EQ(follow_load(automatic(), {}, 0.9 - 0.1, kNow), Emergency{});
}

TEST(Emergency, TheLoadOfOneNodeNeverEndsThatOfAnother) {
  Emergency elsewhere = automatic();
  elsewhere.node = "n2";
  for (const std::optional<double> load : {std::optional<double>{}, std::optional<double>{0.1}}) {
    EXPECT_EQ(follow_load(elsewhere, {}, load, kNow + 1h), elsewhere);
  }
  const Emergency off = turn_off(elsewhere, {}, 0.1);
  EXPECT_FALSE(off.active);
  EXPECT_TRUE(off.held_off) << "the load that turned it on may still be high there";
  EXPECT_EQ(off.node, "");
  EXPECT_EQ(turn_on(elsewhere, {"still bad", "bob"}, kNow)->node, "");
}

TEST(Emergency, TheLoadNeverTurnsOffWhatAHandTurnedOn) {
  EXPECT_EQ(follow_load(manual(), {}, 0.0, kNow + 1h), manual());
  const Emergency taken_over = *turn_on(automatic(), {"still bad", "bob"}, kNow + 1h);
  EXPECT_FALSE(taken_over.automatic);
  EXPECT_EQ(taken_over.by, "bob");
  EXPECT_EQ(taken_over.since, kNow) << "it has been on since then";
  EXPECT_TRUE(follow_load(taken_over, {}, 0.0, kNow + 2h).active);
}

TEST(Emergency, TurnedOffByHandItStaysOffUntilTheLoadHasFallen) {
  Emergency state = turn_off(automatic(), {}, 0.95);
  EXPECT_FALSE(state.active);
  for (const double load : {0.95, 0.81, 1.0}) {
    state = follow_load(state, {}, load, kNow);
    EXPECT_FALSE(state.active) << load;
  }
  state = follow_load(state, {}, 0.9 - 0.1, kNow);
  EXPECT_EQ(state, Emergency{});
  EXPECT_TRUE(follow_load(state, {}, 0.91, kNow).active);
}

TEST(Emergency, TurnedOffByHandUnderALowLoadItMayTurnItselfOnAgain) {
  const Emergency off = turn_off(manual(), {}, 0.5);
  EXPECT_EQ(off, Emergency{});
  EXPECT_TRUE(follow_load(off, {}, 0.91, kNow).active);
}

TEST(Emergency, AHandTurnsOnWhatIsHeldOff) {
  const Emergency held = turn_off(automatic(), {}, 0.95);
  const Emergency on = *turn_on(held, {"again", "bob"}, kNow + 1s);
  EXPECT_TRUE(on.active);
  EXPECT_FALSE(on.held_off);
  EXPECT_EQ(on.since, kNow + 1s);
}

TEST(Emergency, AnUnknownLoadEndsWhatTheLoadTurnedOn) {
  for (const std::optional<double> unknown : {std::optional<double>{}, std::optional<double>{kNan}}) {
    EXPECT_EQ(follow_load({}, {}, unknown, kNow), Emergency{});
    EXPECT_EQ(follow_load(manual(), {}, unknown, kNow), manual());
    EXPECT_EQ(follow_load(automatic(), {}, unknown, kNow), Emergency{});
    EXPECT_EQ(follow_load(turn_off(automatic(), {}, 0.95), {}, unknown, kNow), Emergency{}) << "nothing is held off";
  }
}

TEST(Emergency, WithTheAutomaticOffOnlyHandsCount) {
  const AdaptiveSettings settings{.auto_emergency = false};
  EXPECT_FALSE(follow_load({}, settings, 1.0, kNow).active);
  EXPECT_FALSE(follow_load(automatic(), settings, 1.0, kNow).active) << "what it had turned on goes off";
  EXPECT_TRUE(follow_load(manual(), settings, 0.0, kNow).active);
}

class EmergencyFile : public testing::Test {
 protected:
  [[nodiscard]] std::string message(std::string_view bytes) const {
    write_bytes(path_, bytes);
    const auto loaded = load_emergency(path_);
    if (loaded) return "accepted";
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    return loaded.error().message;
  }
  TempFolder folder_;
  std::string path_ = folder_.file("emergency");
};

TEST_F(EmergencyFile, BringsEveryStateBack) {
  for (const Emergency& state : {Emergency{}, manual(), automatic(), turn_off(automatic(), {}, 0.95)}) {
    ASSERT_TRUE(save_emergency(path_, state));
    const auto loaded = load_emergency(path_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(*loaded, state);
  }
}

TEST_F(EmergencyFile, MissingIsInactive) {
  EXPECT_EQ(*load_emergency(path_), Emergency{});
  EXPECT_EQ(*load_emergency(folder_.file("no/such/folder")), Emergency{});
}

TEST_F(EmergencyFile, TornOrForeignIsRefusedAtEveryLength) {
  ASSERT_TRUE(save_emergency(path_, manual()));
  const std::string whole = read_bytes(path_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(message(whole.substr(0, size)), "accepted") << size;
  }
  EXPECT_EQ(message(""), path_ + ": not a usable emergency state: it is torn");
  EXPECT_EQ(message(whole.substr(0, 60)),
            path_ + ": not a usable emergency state: its checksum does not match: it is torn or was altered");
  EXPECT_EQ(message("{\"active\": true}"),
            path_ + ": not a usable emergency state: it was written by something else or by another version");
  EXPECT_NE(message(whole + whole), "accepted");
  EXPECT_NE(message(whole + std::string(10'000, 'x')), "accepted");
}

RC_GTEST_FIXTURE_PROP(EmergencyFile, AnAlteredByteIsNoticed, ()) {
  RC_ASSERT(save_emergency(path_, manual()).has_value());
  std::string bytes = read_bytes(path_);
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ *rc::gen::inRange(1, 256));
  RC_ASSERT(message(bytes) != "accepted");
}

TEST_F(EmergencyFile, ReplacesWhatACrashLeftAndIsForItsOwnerAlone) {
  write_bytes(path_ + ".new", "half");
  ASSERT_TRUE(save_emergency(path_, manual()));
  struct stat about {};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  EXPECT_NE(::stat((path_ + ".new").c_str(), &about), 0);
}

TEST_F(EmergencyFile, SaysWhereItCannotBeWritten) {
  const auto saved = save_emergency(folder_.file("none/emergency"), manual());
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kIo);
  EXPECT_EQ(saved.error().message,
            folder_.file("none/emergency.new") + ": cannot be written: No such file or directory");
  const auto folder = load_emergency(folder_.path().string());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, folder_.path().string() + ": cannot be read: it must be a regular file");
}

TEST_F(EmergencyFile, TextThatWouldBreakItIsNotSaved) {
  Emergency state = manual();
  state.reason = "a\nsum";
  EXPECT_FALSE(save_emergency(path_, state));
}

}  // namespace
}  // namespace headgate::control

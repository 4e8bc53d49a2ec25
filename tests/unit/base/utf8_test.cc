#include "base/utf8.h"

#include <gtest/gtest.h>

namespace headgate::base {
namespace {

std::string repaired(std::string text) {
  repair(text);
  return text;
}

TEST(Utf8, RepairLeavesTextAsItIs) {
  for (const char* text : {"", "plain", "tab\tand\nline", "caf\xC3\xA9", "\xF0\x9F\x98\x80"}) {
    EXPECT_EQ(repaired(text), text);
  }
}

TEST(Utf8, RepairMarksEachByteThatBelongsToNoCharacter) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired(std::string("a\0b", 3)), "a" + mark + "b");
  EXPECT_EQ(repaired("\xFF\xFE"), mark + mark);
  EXPECT_EQ(repaired("cut \xC3"), "cut " + mark);
  EXPECT_EQ(repaired("\xED\xA0\x80"), mark + mark + mark) << "half of a surrogate pair";
  EXPECT_TRUE(is_utf8(repaired("a long text of plain letters, then \x80 and \xF5")));
}

}  // namespace
}  // namespace headgate::base

#include "base/same_text.h"

#include <gtest/gtest.h>

#include <string>

namespace headgate::base {
namespace {

TEST(SameText, IsWhatComparingEveryByteSays) {
  for (std::size_t size = 0; size <= 40; ++size) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + i % 26);
    EXPECT_TRUE(same_text(text, std::string(text))) << size;
    EXPECT_FALSE(same_text(text, text + "x")) << size;
    for (std::size_t i = 0; i < size; ++i) {
      std::string other = text;
      other[i] = '#';
      EXPECT_FALSE(same_text(text, other)) << "of " << size << " bytes, that at " << i;
    }
  }
}

TEST(SameText, TakesNothingAsNothing) { EXPECT_TRUE(same_text({}, std::string_view("x").substr(1))); }

}  // namespace
}  // namespace headgate::base

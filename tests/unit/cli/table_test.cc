#include "cli/view/table.h"

#include <gtest/gtest.h>

namespace headgate::cli {
namespace {

std::string drawn(std::vector<Table::Cell> row, int width) {
  Table table({{"ID"}, {"KEY"}});
  table.add(std::move(row));
  Terminal terminal;
  terminal.width = width;
  terminal.colour = false;
  return table.text(terminal);
}

TEST(Table, NarrowsColumnsThatCanBeBrokenBetweenWordsFirst) {
  EXPECT_EQ(drawn({{"ui-component-creation"}, {"agent, session"}}, 32),
            "ID                     KEY\n"
            "ui-component-creation  agent,\n"
            "                       session\n");
}

TEST(Table, BreaksALongWordAfterAMark) {
  EXPECT_EQ(drawn({{"ui-component-creation"}, {"a"}}, 18),
            "ID             KEY\n"
            "ui-component-  a\n"
            "creation\n");
  EXPECT_EQ(drawn({{"abcdefghijkl"}, {"a"}}, 11),
            "ID      KEY\n"
            "abcdef  a\n"
            "ghijkl\n");
}

}  // namespace
}  // namespace headgate::cli

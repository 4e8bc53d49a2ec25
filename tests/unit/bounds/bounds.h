// A row of the tables in this folder: one bound of the product, what happens at it, and a function that goes there.
//
// Every queue, table, cache and buffer has a row here or in tests/e2e/bounds_test.py. A new bound needs one line.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace headgate::test {

struct BoundRow {
  std::string_view name;          // part of the test's name, so letters, digits and underscores
  std::string_view at_it;         // what happens at the bound
  std::function<bool()> is_kept;  // goes to the bound and past it
};

inline std::ostream& operator<<(std::ostream& out, const BoundRow& row) { return out << row.name << ": " << row.at_it; }
inline std::string bound_name(const testing::TestParamInfo<BoundRow>& info) { return std::string(info.param.name); }

class Bounds : public testing::TestWithParam<BoundRow> {};

}  // namespace headgate::test

#include "bench/compare/table.h"

#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

TEST(TextTable, GroupsAndAlignment) {
  TextTable table({{"", "name", true}, {"step", "ms"}, {"step", "+-%"}, {"memory", "peak"}});
  table.add_row({"ddp", "12.50", "1.0", "100"});
  table.add_row({"fsdp", "9.000", "12", "7"});
  EXPECT_EQ(table.render(),
            "       step   memory\n"
            "name    ms +-%  peak\n"
            "ddp  12.50 1.0   100\n"
            "fsdp 9.000  12     7\n");
}

TEST(TextTable, SpanRunsAcrossTheOtherColumns) {
  TextTable table({{"", "name", true}, {"", "W"}, {"g", "a"}, {"g", "b"}});
  table.add_row({"x", "2", "1", "2"});
  table.add_span({"y", "12"}, "WRONG h.0.weight");
  EXPECT_EQ(table.render(),
            "          g\n"
            "name  W  a b\n"
            "x     2  1 2\n"
            "y    12  WRONG h.0.weight\n");
}

TEST(TextTable, LabelWiderThanItsColumnsMakesRoom) {
  TextTable table({{"", "n", true}, {"first label", "a"}, {"second label", "b"}});
  table.add_row({"x", "1", "2"});
  const std::string text = table.render();
  EXPECT_NE(text.find("first label second label\n"), std::string::npos) << text;
}

TEST(TextTable, RefusesRowsOfAnotherWidth) {
  TextTable table({{"", "a"}, {"", "b"}});
  EXPECT_THROW(table.add_row({"1"}), InvariantError);
  EXPECT_THROW(table.add_span({"1", "2"}, "x"), InvariantError);
}

}  // namespace
}  // namespace shardbench::bench

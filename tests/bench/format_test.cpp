#include "bench/compare/format.h"

#include <gtest/gtest.h>

namespace shardbench::bench {
namespace {

TEST(Format, FourFigures) {
  EXPECT_EQ(figures(0), "0.000");
  EXPECT_EQ(figures(0.1254), "0.125");
  EXPECT_EQ(figures(9.9994), "9.999");
  EXPECT_EQ(figures(9.9996), "10.00");
  EXPECT_EQ(figures(99.996), "100.0");
  EXPECT_EQ(figures(999.96), "1000");
  EXPECT_EQ(figures(2487.8), "2488");
  EXPECT_EQ(figures(-12.345), "-12.35");
}

TEST(Format, UnitsOfTables) {
  EXPECT_EQ(mib(1024.0 * 1024), "1.000");
  EXPECT_EQ(mib(2'608'594'944.0), "2488");
  EXPECT_EQ(ms(1'500'000), "1.500");
  EXPECT_EQ(ratio(1.4999), "1.50");
  EXPECT_EQ(percent(0.0312), "3.1");
  EXPECT_EQ(percent(0.0996), "10");
  EXPECT_EQ(percent(1.04), "104");
}

TEST(Format, Listing) {
  EXPECT_EQ(listing({}), "");
  EXPECT_EQ(listing({"ddp"}), "ddp");
  EXPECT_EQ(listing({"ddp", "fsdp"}), "ddp and fsdp");
  EXPECT_EQ(listing({"a", "b", "c"}), "a, b and c");
}

TEST(Format, WrappedKeepsTheWidthAndIndents) {
  EXPECT_EQ(wrapped("Topic  ", "one two three four", 17), "Topic  one two\n       three four\n");
  EXPECT_EQ(wrapped("x ", "averyveryverylongword b", 10), "x averyveryverylongword\n  b\n");
  EXPECT_EQ(wrapped("x ", "", 10), "x \n");
}

}  // namespace
}  // namespace shardbench::bench

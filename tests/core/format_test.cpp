#include "common/core/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shardbench {
namespace {

TEST(FormatSignificant, KeepsThreeFigures) {
  EXPECT_EQ(format_significant(0), "0.00");
  EXPECT_EQ(format_significant(1), "1.00");
  EXPECT_EQ(format_significant(12.345), "12.3");
  EXPECT_EQ(format_significant(123.45), "123");
  EXPECT_EQ(format_significant(1234.5678), "1,235");
  EXPECT_EQ(format_significant(0.00123456), "0.00123");
  EXPECT_EQ(format_significant(-2.5), "-2.50");
  EXPECT_EQ(format_significant(-1234567), "-1,234,567");
  EXPECT_EQ(format_significant(12.345, 4), "12.35");
  EXPECT_EQ(format_significant(7.6, 1), "8");
}

TEST(FormatSignificant, RoundingMayAddADigit) {
  EXPECT_EQ(format_significant(9.996), "10.0");
  EXPECT_EQ(format_significant(99.96), "100");
  EXPECT_EQ(format_significant(999.6), "1,000");
  EXPECT_EQ(format_significant(0.9999), "1.00");
}

TEST(FormatSignificant, NotANumberIsADash) {
  EXPECT_EQ(format_significant(std::nan("")), "-");
  EXPECT_EQ(format_significant(std::numeric_limits<double>::infinity()), "-");
}

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(163037184), "163,037,184");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536 << 10), "1.50 MiB");
  EXPECT_EQ(format_bytes(2'608'594'944), "2.43 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(format_bytes(-(1 << 20)), "-1.00 MiB");
  EXPECT_EQ(format_mib(2'608'594'944), "2,488");
  EXPECT_EQ(format_mib(1 << 19), "0.500");
  EXPECT_EQ(format_gib(2'608'594'944), "2.43");
}

TEST(FormatTime, PicksTheUnit) {
  EXPECT_EQ(format_time_ns(0), "0 ns");
  EXPECT_EQ(format_time_ns(999), "999 ns");
  EXPECT_EQ(format_time_ns(1'000), "1.00 us");
  EXPECT_EQ(format_time_ns(12'340'000), "12.3 ms");
  EXPECT_EQ(format_time_ns(1'230'000'000), "1.23 s");
  EXPECT_EQ(format_time_ns(59'900'000'000), "59.9 s");
  EXPECT_EQ(format_time_ns(59'960'000'000), "1 min 00 s");
  EXPECT_EQ(format_time_ns(125'000'000'000), "2 min 05 s");
  EXPECT_EQ(format_time_ns(3'720'000'000'000), "1 h 02 min");
  EXPECT_EQ(format_ms(1'234'567), "1.23");
}

TEST(FormatRatio, AndPercent) {
  EXPECT_EQ(format_ratio(1.5), "1.50x");
  EXPECT_EQ(format_ratio(std::nan("")), "-");
  EXPECT_EQ(format_percent(0.123), "12.3 %");
  EXPECT_EQ(format_percent(std::nan("")), "-");
}

TEST(Join, Lists) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({"a", "b"}, "|"), "a|b");
}

TEST(Closest, FindsTyposOnly) {
  const std::vector<std::string> models = {"mlp", "gpt2-nano", "gpt2", "gpt2-medium", "llama-nano"};
  EXPECT_EQ(closest("gpt2", models), "gpt2");
  EXPECT_EQ(closest("gpt-nano", models), "gpt2-nano");
  EXPECT_EQ(closest("GPT2-Nano", models), "gpt2-nano");
  EXPECT_EQ(closest("gtp2", models), "gpt2");  // neighbours swapped: one mistake
  EXPECT_EQ(closest("mpl", models), "mlp");
  EXPECT_EQ(closest("resnet", models), "");
  EXPECT_EQ(closest("", models), "");
  EXPECT_EQ(closest("x", {}), "");
  EXPECT_EQ(closest("ab", {"ac", "ad"}), "");  // half of it wrong
  EXPECT_EQ(closest("abcd", {"abce", "abcf"}), "abce");
  EXPECT_EQ(did_you_mean("fsdb", {"ddp", "zero3", "fsdp"}), " (did you mean 'fsdp'?)");
  EXPECT_EQ(did_you_mean("horovod", {"ddp", "zero3", "fsdp"}), "");
}

}  // namespace
}  // namespace shardbench

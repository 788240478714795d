#include "bench/cli/parse.h"

#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::cli {
namespace {

/// The message of what `call` throws.
template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(ParseCount, TakesWholeNumbersInRange) {
  EXPECT_EQ(parse_count("--x", "1", 1, 64), 1);
  EXPECT_EQ(parse_count("--x", "64", 1, 64), 64);
  EXPECT_EQ(parse_count("--x", "007", 1, 64), 7);
}

TEST(ParseCount, SaysWhatIsRight) {
  for (const char* text : {"", "x", "1.5", "1e3", "3 ", " 3", "+3", "0x10", "-", "1,2"}) {
    EXPECT_NE(message_of([&] {
                parse_count("--x", text, 1, 64);
              }).find("not a whole number; give one from 1 to 64"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(message_of([] { parse_count("--x", "0", 1, 64); }),
            "--x 0: must be a number from 1 to 64; nearest: 1");
  EXPECT_EQ(message_of([] { parse_count("--x", "-5", 0, 64); }),
            "--x -5: must be a number from 0 to 64; nearest: 0");
  EXPECT_EQ(message_of([] { parse_count("--x", "99999999999999999999999", 1, 64); }),
            "--x 99999999999999999999999: must be a number from 1 to 64; nearest: 64");
  EXPECT_EQ(message_of([] { parse_count("--x", "-99999999999999999999999", 1, 64); }),
            "--x -99999999999999999999999: must be a number from 1 to 64; nearest: 1");
}

TEST(ParseReal, TakesFiniteNumbers) {
  EXPECT_EQ(parse_real("--lr", "1e-3", 0, 1), 1e-3);
  EXPECT_EQ(parse_real("--lr", "0", 0, 1), 0);
  for (const char* text : {"", "abc", "1x", "nan", "inf", "1,5", "1e999"}) {
    EXPECT_NE(message_of([&] { parse_real("--lr", text, 0, 1e308); }).find("not a number"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(message_of([] { parse_real("--t", "0", 0, 10, true); }),
            "--t 0: must be above 0 and at most 10");
  EXPECT_EQ(message_of([] { parse_real("--t", "-1", 0, 1e308); }), "--t -1: must be at least 0");
}

TEST(ParseSeed, AllOfSixtyFourBits) {
  EXPECT_EQ(parse_seed("--seed", "18446744073709551615"), ~std::uint64_t{0});
  EXPECT_THROW(parse_seed("--seed", "18446744073709551616"), UserError);
  EXPECT_THROW(parse_seed("--seed", "-1"), UserError);
}

TEST(ParseChoice, NamesChoicesAndTheNearest) {
  EXPECT_EQ(parse_choice("--format", "json", {"table", "json"}), "json");
  EXPECT_EQ(message_of([] {
              parse_choice("--format", "jsn", {"table", "json"});
            }),
            "--format 'jsn': choose from table, json (did you mean 'json'?)");
}

TEST(ParseList, KeepsOrderAndRefusesGapsAndRepeats) {
  EXPECT_EQ(parse_list("--s", "b,a"), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(parse_list("--s", "one"), (std::vector<std::string>{"one"}));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_NE(message_of([&] { parse_list("--s", text); }).find("empty"), std::string::npos)
        << text;
  }
  EXPECT_EQ(message_of([] { parse_list("--s", "a,b,a"); }), "--s 'a,b,a': a stands there twice");
}

TEST(ParsePair, SplitsAtTheFirstEqualSign) {
  EXPECT_EQ(parse_pair("--c", "k=a=b"), (std::pair<std::string, std::string>{"k", "a=b"}));
  EXPECT_EQ(parse_pair("--c", "k="), (std::pair<std::string, std::string>{"k", ""}));
  EXPECT_THROW(parse_pair("--c", "=v"), UserError);
  EXPECT_THROW(parse_pair("--c", "k"), UserError);
}

TEST(ParseSimd, TakesWhatTheCpuHasAndRefusesTheRestByName) {
  const std::vector<SimdWidth> older = {SimdWidth::kPortable, SimdWidth::kAvx2};
  EXPECT_EQ(parse_simd("auto", older), SimdWidth::kAvx2);
  EXPECT_EQ(parse_simd("portable", older), SimdWidth::kPortable);
  EXPECT_EQ(parse_simd("avx512", {SimdWidth::kPortable, SimdWidth::kAvx512}), SimdWidth::kAvx512);
  try {
    parse_simd("avx512", older);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "--simd avx512: this CPU does not have it; choose from auto, portable, avx2");
  }
  EXPECT_THROW(parse_simd("sse", older), UserError);
}

}  // namespace
}  // namespace shardbench::cli

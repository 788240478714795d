#include "common/core/simd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "common/core/error.h"
#include "tests/support/simd.h"

namespace shardbench {
namespace {

using ::testing::HasSubstr;

[[gnu::always_inline]] inline std::int64_t sum_loop(const std::int64_t* values,
                                                    std::int64_t count) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

TEST(Simd, TheWidestIsUsedUntilAnotherIsAskedFor) {
  const std::vector<SimdWidth> widths = simd_widths();
  EXPECT_EQ(widths.front(), SimdWidth::kPortable);
  EXPECT_TRUE(std::is_sorted(widths.begin(), widths.end()));
  EXPECT_EQ(simd_width(), widths.back());
  {
    const testing::WithSimdWidth portable(SimdWidth::kPortable);
    EXPECT_EQ(simd_width(), SimdWidth::kPortable);
  }
  EXPECT_EQ(simd_width(), widths.back());
}

TEST(Simd, EveryWidthRunsTheSameLoop) {
  std::vector<std::int64_t> values(1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * i);
  for (const SimdWidth width : simd_widths()) {
    const testing::WithSimdWidth in_use(width);
    EXPECT_EQ(run_simd<sum_loop>(values.data(), std::int64_t{1001}), 333'833'500) << name_of(width);
  }
}

TEST(Simd, RefusesAWidthThatIsNotThere) {
  const std::vector<SimdWidth> widths = simd_widths();
  for (const SimdWidth width : {SimdWidth::kPortable, SimdWidth::kAvx2, SimdWidth::kAvx512}) {
    if (std::find(widths.begin(), widths.end(), width) != widths.end()) continue;
    try {
      use_simd_width(width);
      FAIL() << name_of(width);
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(name_of(width))));
      EXPECT_THAT(error.what(), HasSubstr("it has portable"));
    }
  }
  // No build has this one.
  EXPECT_THROW(use_simd_width(static_cast<SimdWidth>(99)), UserError);
  EXPECT_EQ(simd_width(), widths.back());
}

}  // namespace
}  // namespace shardbench

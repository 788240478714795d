#include "common/core/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/core/dtype.h"
#include "common/core/phase.h"
#include "common/core/rank_context.h"

namespace shardbench {
namespace {

using testing::HasSubstr;

TEST(Check, PassesWithoutEvaluatingTheMessage) {
  int evaluated = 0;
  const auto count = [&] { return ++evaluated; };
  SHARDBENCH_CHECK(true, "{}", count());
  SHARDBENCH_CHECK_EQ(1, 1);
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, MessageHasExpressionValuesPlaceAndRank) {
  std::thread([] {
    rank_context() = {1, 4, "shm"};
    try {
      const int left = 3;
      SHARDBENCH_CHECK_EQ(left, 5);
      FAIL();
    } catch (const InvariantError& error) {
      EXPECT_THAT(error.what(), HasSubstr("[rank 1/4 shm] "));
      EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:"));
      EXPECT_THAT(error.what(), HasSubstr("left == 5: 3 against 5"));
    }
  }).join();
  try {
    SHARDBENCH_CHECK(1 > 2, "of {}", 7);
    FAIL();
  } catch (const InvariantError& error) {
    EXPECT_THAT(error.what(), HasSubstr("check failed: 1 > 2: of 7"));
    EXPECT_THAT(error.what(), Not(HasSubstr("[rank")));  // the other thread's rank is its own
  }
}

TEST(Check, EveryComparison) {
  EXPECT_THROW(SHARDBENCH_CHECK_LE(2, 1), InvariantError);
  EXPECT_THROW(SHARDBENCH_CHECK_LT(1, 1), InvariantError);
  EXPECT_THROW(SHARDBENCH_CHECK_GE(1, 2), InvariantError);
  EXPECT_NO_THROW(SHARDBENCH_CHECK_LE(1, 1));
  EXPECT_NO_THROW(SHARDBENCH_CHECK_LT(0, 1));
  EXPECT_NO_THROW(SHARDBENCH_CHECK_GE(1, 1));
}

TEST(UserError, Formats) {
  EXPECT_STREQ(UserError::format("--world {} is not valid", 0).what(), "--world 0 is not valid");
}

TEST(Names, OfPhasesAndTypes) {
  EXPECT_EQ(name_of(Phase::kBackward), "backward");
  EXPECT_EQ(name_of(Phase::kMetrics), "metrics");
  EXPECT_EQ(name_of(DType::kBFloat16), "bf16");
  EXPECT_EQ(size_of(DType::kFloat16), 2u);
  EXPECT_EQ(size_of(DType::kInt64), 8u);
}

TEST(MessageOf, LeavesTheStackTraceOut) {
  EXPECT_EQ(message_of(std::runtime_error("sizes differ\nException raised from f at g.cpp:3\n#0")),
            "sizes differ");
  EXPECT_EQ(message_of(std::runtime_error("plain text \n")), "plain text \n");
  EXPECT_EQ(message_of(std::runtime_error("Exception raised from f")), "");
}

}  // namespace
}  // namespace shardbench

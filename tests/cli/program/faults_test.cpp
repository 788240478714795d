// Ranks that fail, vanish or stall, and signals: exit codes, who is named, nothing left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> faulty(const char* injection) {
  return small_job({"compare", "--strategy", "fsdp", "--steps", "3", "--warmup", "1", "--quiet",
                    "--timeout", "5", "--inject", injection});
}

TEST(Faults, ARankThatThrows) {
  const Outcome outcome = run_shardbench(faulty("throw@1,2,backward"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.err, HasSubstr("backward"));
  EXPECT_THAT(outcome.out, HasSubstr("FAILED"));
  EXPECT_EQ(children_left(), 0);
}

TEST(Faults, ARankThatIsKilled) {
  const Outcome outcome = run_shardbench(faulty("kill@1,2,forward"));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.err, HasSubstr("forward"));
  EXPECT_EQ(children_left(), 0);
}

TEST(Faults, ARankThatExits) {
  const Outcome outcome = run_shardbench(faulty("exit@0,2,optimizer"));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 0"));
  EXPECT_EQ(children_left(), 0);
}

TEST(Faults, ARankThatStalls) {
  const Outcome outcome = run_shardbench(faulty("stall@1,2,backward"));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  EXPECT_EQ(children_left(), 0);
}

TEST(Faults, OtherStrategiesAndTheirRowsStay) {
  const Outcome outcome =
      run_shardbench(small_job({"compare", "--strategy", "ddp,fsdp", "--world", "3", "--steps", "2",
                                "--quiet", "--inject", "throw@2,1,forward"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("\nddp "));
  EXPECT_THAT(outcome.out, HasSubstr("\nfsdp "));
}

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, EndTheProgramAndEveryRank) {
  RunOptions options;
  options.signal = GetParam();
  options.signal_after_s = 2;
  const Outcome outcome =
      run_shardbench({"compare", "--data", "synthetic", "--steps", "100000", "--quiet"}, options);
  EXPECT_EQ(outcome.exit_code, 128 + GetParam()) << outcome.err;
  EXPECT_EQ(children_left(), 0);
}
INSTANTIATE_TEST_SUITE_P(IntAndTerm, Signals, ::testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace shardbench::cli

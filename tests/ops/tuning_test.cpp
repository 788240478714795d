#include "common/ops/tuning.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/core/error.h"

namespace shardbench::ops {
namespace {

TuneKey key_of(Pass pass, std::int64_t rows, std::int64_t in, std::int64_t out,
               bool accumulate = false) {
  return {pass, DType::kFloat32, false, accumulate, rows, in, out};
}

const TuneKey kLarge = key_of(Pass::kForward, 512, 384, 1536);
const TuneKey kSmall = key_of(Pass::kForward, 8, 16, 16);

TuningTable table_of(const TuneKey& key, Candidate candidate) {
  TuningTable table;
  table.mode = TuneMode::kOn;
  table.entries = {{key, candidate, {}}};
  return table;
}

class Tuning : public ::testing::Test {
 protected:
  void TearDown() override { set_tuning({}); }
};

TEST_F(Tuning, TheFixedRuleHoldsUnlessSaidOtherwise) {
  for (const TuneKey& key : {kLarge, kSmall}) EXPECT_EQ(chosen(key), fixed_rule(key));
  EXPECT_EQ(fixed_rule(kLarge), Candidate::kOneDnnMatmul);
  EXPECT_EQ(fixed_rule(kSmall), Candidate::kAten);
}

TEST_F(Tuning, FixedRuleByPassAndSize) {
  TuneKey biased = kLarge;
  biased.bias = true;
  EXPECT_EQ(fixed_rule(biased), Candidate::kOneDnnLinear);
  EXPECT_EQ(fixed_rule(key_of(Pass::kInputGrad, 512, 384, 1536)), Candidate::kOneDnnMatmul);
  EXPECT_EQ(fixed_rule(key_of(Pass::kWeightGrad, 512, 384, 1536)), Candidate::kOneDnnMatmul);
  EXPECT_EQ(fixed_rule(key_of(Pass::kWeightGrad, 512, 384, 1536, true)), Candidate::kAten);
  // One row is a matrix-vector product, however wide.
  EXPECT_EQ(fixed_rule(key_of(Pass::kForward, 1, 4096, 50257)), Candidate::kAten);
  EXPECT_EQ(fixed_rule(key_of(Pass::kForward, 128, 256, 256)), Candidate::kOneDnnMatmul);
  EXPECT_EQ(fixed_rule(key_of(Pass::kForward, 128, 256, 255)), Candidate::kAten);
  TuneKey half = kLarge;
  half.dtype = DType::kBFloat16;
  EXPECT_EQ(fixed_rule(half), Candidate::kAten);
  for (const TuneKey& empty : {key_of(Pass::kForward, 0, 5, 5), key_of(Pass::kForward, 99, 0, 5),
                               key_of(Pass::kForward, 99, 5, 0)}) {
    EXPECT_EQ(fixed_rule(empty), Candidate::kAten);
    EXPECT_EQ(candidates_for(empty).size(), 1u);
  }
}

TEST_F(Tuning, TheFixedRuleNamesACandidateOfTheKey) {
  for (Pass pass : {Pass::kForward, Pass::kInputGrad, Pass::kWeightGrad}) {
    for (bool flag : {false, true}) {
      for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
        const TuneKey key{pass, dtype, flag, flag, 512, 384, 1536};
        const std::vector<Candidate> candidates = candidates_for(key);
        EXPECT_EQ(candidates.front(), Candidate::kAten);
        EXPECT_NE(std::find(candidates.begin(), candidates.end(), fixed_rule(key)),
                  candidates.end());
      }
    }
  }
}

TEST_F(Tuning, ATableDecidesForItsKeysAndTheRuleForOthers) {
  set_tuning(table_of(kSmall, Candidate::kOneDnnLinear));
  EXPECT_EQ(chosen(kSmall), Candidate::kOneDnnLinear);
  TuneKey other = kSmall;
  other.bias = true;
  EXPECT_EQ(chosen(other), fixed_rule(other));
  EXPECT_EQ(chosen(kLarge), fixed_rule(kLarge));
}

TEST_F(Tuning, OffIsAtenAndFixedIgnoresEntries) {
  TuningTable table = table_of(kSmall, Candidate::kOneDnnLinear);
  table.mode = TuneMode::kOff;
  set_tuning(table);
  EXPECT_EQ(chosen(kSmall), Candidate::kAten);
  EXPECT_EQ(chosen(kLarge), Candidate::kAten);
  table.mode = TuneMode::kFixed;
  set_tuning(table);
  EXPECT_EQ(chosen(kSmall), fixed_rule(kSmall));
  EXPECT_EQ(chosen(kLarge), fixed_rule(kLarge));
}

TEST_F(Tuning, EveryFieldOfAKeyCounts) {
  TuneKey key{Pass::kWeightGrad, DType::kFloat32, false, false, 512, 384, 1536};
  set_tuning(table_of(key, Candidate::kOneDnnLinear));
  EXPECT_EQ(chosen(key), Candidate::kOneDnnLinear);
  std::vector<TuneKey> others(7, key);
  others[0].pass = Pass::kInputGrad;
  others[1].dtype = DType::kFloat64;
  others[2].bias = true;
  others[3].accumulate = true;
  others[4].rows = 384;
  others[5].in = 512;
  others[6].out = 1537;
  for (const TuneKey& other : others) EXPECT_NE(chosen(other), Candidate::kOneDnnLinear);
}

TEST_F(Tuning, ReadersSeeOneTableOrTheOther) {
  std::thread writer([] {
    for (int i = 0; i < 200; ++i) {
      set_tuning(table_of(kLarge, i % 2 == 0 ? Candidate::kAten : Candidate::kOneDnnLinear));
    }
  });
  set_tuning(table_of(kLarge, Candidate::kAten));
  for (int i = 0; i < 20'000; ++i) {
    const Candidate candidate = chosen(kLarge);
    ASSERT_TRUE(candidate == Candidate::kAten || candidate == Candidate::kOneDnnLinear);
  }
  writer.join();
}

TEST_F(Tuning, TheFastestRightCandidateWins) {
  const auto pick = [](std::vector<CandidateTime> times) { return fastest(kLarge, times); };
  EXPECT_EQ(pick({{Candidate::kAten, 100, true}, {Candidate::kOneDnnLinear, 150, true}}),
            Candidate::kAten);
  EXPECT_EQ(pick({{Candidate::kAten, 150, true}, {Candidate::kOneDnnLinear, 100, true}}),
            Candidate::kOneDnnLinear);
  // A wrong one never, however fast; one that was not timed neither.
  EXPECT_EQ(pick({{Candidate::kAten, 150, true}, {Candidate::kOneDnnLinear, 1, false}}),
            Candidate::kAten);
  EXPECT_EQ(pick({{Candidate::kAten, 150, true}, {Candidate::kOneDnnLinear, 0, true}}),
            Candidate::kAten);
  EXPECT_EQ(pick({}), Candidate::kAten);
  EXPECT_EQ(pick({{Candidate::kAten, 0, true}}), Candidate::kAten);
}

TEST_F(Tuning, TheRulesChoiceStaysWithinNoise) {
  const auto pick = [](std::int64_t aten, std::int64_t matmul) {
    return fastest(kLarge,
                   {{Candidate::kAten, aten, true}, {Candidate::kOneDnnMatmul, matmul, true}});
  };
  ASSERT_EQ(fixed_rule(kLarge), Candidate::kOneDnnMatmul);
  EXPECT_EQ(pick(1000, 1020), Candidate::kOneDnnMatmul);
  EXPECT_EQ(pick(1000, 1021), Candidate::kAten);
  EXPECT_EQ(
      fastest(kLarge, {{Candidate::kAten, 1000, true}, {Candidate::kOneDnnMatmul, 1010, false}}),
      Candidate::kAten);
}

TEST_F(Tuning, KeysAreRecordedOnceFromAnyThread) {
  KeyRecorder recorder;
  chosen(kLarge);
  std::thread([] {
    chosen(kSmall);
    chosen(kLarge);
  }).join();
  TuneKey one_candidate = kLarge;
  one_candidate.dtype = DType::kFloat64;
  chosen(one_candidate);
  EXPECT_EQ(recorder.keys(), (std::vector<TuneKey>{kSmall, kLarge}));
  EXPECT_THROW(KeyRecorder(), InvariantError);
}

TEST_F(Tuning, NothingIsRecordedAfterwards) {
  { const KeyRecorder recorder; }
  chosen(kLarge);
  const KeyRecorder recorder;
  EXPECT_TRUE(recorder.keys().empty());
}

}  // namespace
}  // namespace shardbench::ops

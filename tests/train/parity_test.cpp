#include <gtest/gtest.h>

#include "common/train/digest.h"
#include "common/train/result.h"

namespace shardbench::train {
namespace {

TEST(Digest, PartsAddUpToTheWhole) {
  const float values[] = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(digest(values, 0, 3) + digest(values + 3, 3, 4), digest(values, 0, 7));
  EXPECT_EQ(digest(values, 0, 0), 0u);
}

TEST(Digest, SeesSwappedChangedAndMissingElements) {
  const float values[] = {1, 2, 3}, swapped[] = {2, 1, 3}, zero[] = {0.0f}, minus[] = {-0.0f};
  EXPECT_NE(digest(values, 0, 3), digest(swapped, 0, 3));
  EXPECT_NE(digest(values, 0, 3), digest(values, 0, 2));
  EXPECT_NE(digest(values, 0, 3), digest(values, 1, 3));
  EXPECT_NE(digest(zero, 0, 1), digest(minus, 0, 1));
}

/// Two parameters, two ranks, two steps; `replicated` as ddp, else digests add up.
struct Made {
  StrategyRun run;
  ReferenceResult reference;
};

Made made(bool replicated) {
  Made m;
  m.reference.parameter_names = {"a", "b"};
  m.reference.digests = {{10, 20, 30, 40}, {50, 60, 70, 80}};
  m.reference.steps.resize(2);
  m.reference.steps[0].loss = 3;
  m.reference.steps[1].loss = 2;
  m.reference.evaluation_losses = {2.5};
  for (int rank = 0; rank < 2; ++rank) {
    RankResult r;
    r.rank = rank;
    r.steps = m.reference.steps;
    r.evaluation_losses = {2.5};
    r.replicated = replicated;
    r.digests = m.reference.digests;
    if (!replicated) {
      for (ParameterDigest& d : r.digests) {
        d = rank == 0 ? ParameterDigest{1, 2, 3, 4}
                      : ParameterDigest{d.value - 1, d.first_moment - 2, d.second_moment - 3,
                                        d.first_gradient - 4};
      }
    }
    m.run.ranks.push_back(r);
  }
  return m;
}

TEST(Judge, EqualRunsHaveOneHash) {
  const Made ddp = made(true), fsdp = made(false);
  const Parity a = judge(ddp.run, ddp.reference), b = judge(fsdp.run, fsdp.reference);
  EXPECT_TRUE(a.ok && a.bit_equal && b.ok && b.bit_equal);
  EXPECT_EQ(a.hash, b.hash);
}

TEST(Judge, NamesTheFirstTensorThatDiffers) {
  Made m = made(false);
  m.run.ranks[1].digests[1].first_gradient += 1;
  EXPECT_EQ(judge(m.run, m.reference).first_tensor, "b");
  m = made(false);
  m.run.ranks[0].digests[0].value += 1;
  EXPECT_EQ(judge(m.run, m.reference).first_tensor, "a");
  m = made(false);
  m.run.ranks[0].digests[1].second_moment += 1;
  EXPECT_EQ(judge(m.run, m.reference).first_tensor, "b");
  EXPECT_FALSE(judge(m.run, m.reference).bit_equal);
}

TEST(Judge, SeesReplicasThatDiffer) {
  Made m = made(true);
  m.run.ranks[1].digests[1].value += 1;
  const Parity parity = judge(m.run, m.reference);
  EXPECT_FALSE(parity.ok);
  EXPECT_EQ(parity.first_tensor, "b");
}

TEST(Judge, ALossThatDiffersIsNamedByStep) {
  Made m = made(true);
  m.run.ranks[0].steps[1].loss = 2.0000001;
  EXPECT_EQ(judge(m.run, m.reference).first_tensor, "loss of step 2");
  m = made(true);
  m.run.ranks[0].evaluation_losses[0] = 9;
  EXPECT_EQ(judge(m.run, m.reference).first_tensor, "evaluation 1");
}

TEST(Judge, WholeBatchReferenceMustBeClose) {
  Made m = made(true);
  m.reference.gradients_close = false;
  m.reference.gradient_worst_tensor = "b";
  m.reference.gradient_max_rel_diff = 0.5;
  const Parity parity = judge(m.run, m.reference);
  EXPECT_TRUE(parity.bit_equal);
  EXPECT_FALSE(parity.ok);
  EXPECT_EQ(parity.first_tensor, "b");
}

TEST(Judge, LooksAtWholeCopiesAndBuffersOfEveryRank) {
  Made m = made(false);
  m.reference.whole_values = {10, 50};
  m.reference.buffer_names = {"mean"};
  m.reference.buffer_digests = {5};
  for (RankResult& rank : m.run.ranks) {
    rank.whole_values = {10, 50};
    rank.buffer_digests = {5};
  }
  EXPECT_TRUE(judge(m.run, m.reference).ok);
  m.run.ranks[1].buffer_digests[0] = 6;
  EXPECT_EQ(judge(m.run, m.reference).first_tensor, "mean");
  m.run.ranks[1].whole_values[1] = 51;  // a broadcast that never came
  const Parity parity = judge(m.run, m.reference);
  EXPECT_FALSE(parity.ok);
  EXPECT_EQ(parity.first_tensor, "b");
  EXPECT_NE(parity.detail.find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace shardbench::train

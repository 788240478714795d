#include "common/ops/tuner.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "common/ops/linear_candidates.h"

namespace shardbench::ops {
namespace {

const std::vector<TuneKey> kKeys = {{Pass::kForward, DType::kFloat32, true, false, 33, 40, 50},
                                    {Pass::kInputGrad, DType::kFloat32, false, false, 33, 40, 50},
                                    {Pass::kWeightGrad, DType::kFloat32, false, false, 33, 40, 50},
                                    {Pass::kWeightGrad, DType::kFloat32, false, true, 33, 40, 50}};

/// A clock that stands still but for what a test adds.
struct MadeUpTime {
  std::int64_t ns = 0;
  TunerOptions options(double budget_s = 1) {
    TunerOptions options;
    options.budget_s = budget_s;
    options.now_ns = [this] { return ns; };
    options.available = [](Candidate) { return true; };
    return options;
  }
};

TunerOptions quick() {
  TunerOptions options;
  options.budget_s = 60;
  options.most_rounds = 2;
  return options;
}

/// Right values by the plain way, whatever the candidate.
at::Tensor plain_result(const TuneKey& key, const PassArguments& arguments) {
  if (key.pass == Pass::kForward) {
    return linear_by(Candidate::kAten, arguments.rows, arguments.other, arguments.bias);
  }
  if (key.pass == Pass::kInputGrad) {
    return linear_input_grad_by(Candidate::kAten, arguments.rows, arguments.other);
  }
  linear_weight_grad_by(Candidate::kAten, arguments.rows, arguments.other, arguments.target,
                        key.accumulate);
  return arguments.target;
}

TEST(Tuner, MeasuresEveryKeyAndCandidate) {
  const std::vector<TunedEntry> entries = measure(kKeys, quick());
  ASSERT_EQ(entries.size(), kKeys.size());
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    EXPECT_EQ(entries[i].key, kKeys[i]);
    EXPECT_EQ(entries[i].chosen, fastest(kKeys[i], entries[i].times));
    EXPECT_EQ(entries[i].times.front().candidate, Candidate::kAten);
    for (const CandidateTime& time : entries[i].times) {
      EXPECT_TRUE(time.right) << name_of(time.candidate);
      EXPECT_GT(time.ns, 0) << name_of(time.candidate);
    }
  }
}

TEST(Tuner, TheFastOneIsChosen) {
  MadeUpTime time;
  // Each by its number, and everything slower now and then: the shortest time counts.
  int calls = 0;
  const auto run = [&](Candidate candidate, const TuneKey& key, const PassArguments& a) {
    const std::int64_t ns = 900 - 100 * static_cast<std::int64_t>(candidate);
    time.ns += ++calls % 4 == 0 ? 2 * ns : ns;
    return plain_result(key, a);
  };
  for (const TunedEntry& entry : measure(kKeys, time.options(), run)) {
    EXPECT_EQ(entry.chosen, Candidate::kOpenBlas);
    for (const CandidateTime& t : entry.times) {
      EXPECT_EQ(t.ns, 900 - 100 * static_cast<std::int64_t>(t.candidate));
    }
  }
}

TEST(Tuner, RoundsEndWithTheBudgetAndHopelessOnesSooner) {
  MadeUpTime time;
  std::map<Candidate, int> calls;
  const auto run = [&](Candidate candidate, const TuneKey& key, const PassArguments& a) {
    ++calls[candidate];
    time.ns += candidate == Candidate::kOneDnnLinear ? 100'000'000 : 1'000'000;
    return plain_result(key, a);
  };
  measure({kKeys[1]}, time.options(0.5), run);
  EXPECT_EQ(calls[Candidate::kOneDnnLinear], 2);  // the check and one round
  EXPECT_EQ(calls[Candidate::kAten], 1 + 20);
  calls.clear();
  measure({kKeys[1]}, time.options(0.2), run);  // spent by the check and the first round
  EXPECT_EQ(calls[Candidate::kAten], 1 + 3);
}

TEST(Tuner, AWrongOneIsMarkedAndNeverChosen) {
  // Off by a relative 1e-3 (as bf16 products would be), NaN, or of another shape; and fast.
  const std::vector<std::function<at::Tensor(at::Tensor)>> wrongs = {
      [](at::Tensor t) { return t.mul_(1.001); },
      [](at::Tensor t) { return t.fill_(std::numeric_limits<double>::quiet_NaN()); },
      [](at::Tensor t) { return t.view({-1}); }, [](at::Tensor) { return at::Tensor(); }};
  MadeUpTime time;
  for (const auto& wrong : wrongs) {
    const auto run = [&](Candidate candidate, const TuneKey& key, const PassArguments& a) {
      const at::Tensor right = plain_result(key, a);
      if (candidate != Candidate::kOneDnnMatmul) {
        time.ns += 1000;
        return right;
      }
      return wrong(right);
    };
    for (const TunedEntry& entry : measure(kKeys, time.options(), run)) {
      EXPECT_NE(entry.chosen, Candidate::kOneDnnMatmul);
      for (const CandidateTime& t : entry.times) {
        EXPECT_EQ(t.right, t.candidate != Candidate::kOneDnnMatmul);
      }
    }
  }
}

TEST(Tuner, ACandidateThatForgetsToAddIsWrong) {
  const auto run = [](Candidate candidate, const TuneKey& key, const PassArguments& a) {
    TuneKey used = key;
    if (candidate != Candidate::kAten) used.accumulate = false;
    return plain_result(used, a);
  };
  TunerOptions options = quick();
  options.available = [](Candidate) { return true; };
  const std::vector<TunedEntry> entries = measure({kKeys[3]}, options, run);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].chosen, Candidate::kAten);
  EXPECT_FALSE(entries[0].times.back().right);
}

TEST(Tuner, KeysBeyondTheTimeAreLeftOut) {
  MadeUpTime time;
  const auto slow = [&](Candidate, const TuneKey& key, const PassArguments& a) {
    time.ns += 100'000'000;
    return plain_result(key, a);
  };
  std::vector<TuneKey> keys;
  for (int i = 1; i <= 50; ++i) {
    keys.push_back({Pass::kInputGrad, DType::kFloat32, false, false, i, 3, 4});
  }
  // 0.4 s for each check or round of four candidates: five checks begin within twice the budget,
  // and all five are timed within four times.
  EXPECT_EQ(measure(keys, time.options(1), slow).size(), 5u);
  keys.resize(4);
  EXPECT_EQ(measure(keys, time.options(1), slow).size(), 4u);
}

TEST(Tuner, NoKeysNoEntries) { EXPECT_TRUE(measure({}).empty()); }

}  // namespace
}  // namespace shardbench::ops

#include "common/ops/linear_candidates.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "common/ops/linear.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

constexpr std::array kCandidates = {Candidate::kAten, Candidate::kOneDnnLinear,
                                    Candidate::kOneDnnMatmul, Candidate::kOpenBlas};

struct Case {
  Candidate candidate;
  std::int64_t rows, in, out;
};

std::vector<Case> cases() {
  // One row, one column, one product; sizes that no vector width or block divides; large ones.
  const std::vector<std::array<std::int64_t, 3>> sizes = {
      {1, 1, 1},   {1, 5, 1},    {5, 1, 1},       {1, 1, 7},      {7, 1, 3},
      {3, 2, 1},   {1, 13, 17},  {13, 257, 129},  {127, 65, 33},  {2, 3, 500},
      {64, 1, 64}, {65, 300, 1}, {256, 128, 384}, {31, 1021, 509}};
  std::vector<Case> all;
  for (Candidate candidate : kCandidates) {
    for (const auto& [rows, in, out] : sizes) all.push_back({candidate, rows, in, out});
  }
  return all;
}

class LinearCandidate : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    at::set_num_threads(1);  // as ranks have; OpenBLAS serves with one only
  }

  /// Sums of products in fp32: errors are bounded by the norms of what is multiplied and added.
  static void expect_rounding_only(const at::Tensor& got, const at::Tensor& exact, double scale) {
    ASSERT_EQ(got.sizes(), exact.sizes());
    const double error = (got.to(at::kDouble) - exact).norm().item<double>();
    EXPECT_LE(error, 2 * std::numeric_limits<float>::epsilon() * scale);
  }
  static double norm(const at::Tensor& t) { return t.to(at::kDouble).norm().item<double>(); }
};

TEST_P(LinearCandidate, Forward) {
  const auto& [candidate, rows, in, out] = GetParam();
  const at::Tensor x = random({rows, in}, at::kFloat), w = random({out, in}, at::kFloat),
                   b = random({out}, at::kFloat);
  const at::Tensor exact = at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
  expect_rounding_only(linear_by(candidate, x, w, {}), exact, norm(x) * norm(w));
  expect_rounding_only(linear_by(candidate, x, w, b), exact + b,
                       norm(x) * norm(w) + norm(b) * std::sqrt(static_cast<double>(rows)));
}

TEST_P(LinearCandidate, InputGrad) {
  const auto& [candidate, rows, in, out] = GetParam();
  const at::Tensor grad = random({rows, out}, at::kFloat), w = random({out, in}, at::kFloat);
  expect_rounding_only(linear_input_grad_by(candidate, grad, w),
                       at::mm(grad.to(at::kDouble), w.to(at::kDouble)), norm(grad) * norm(w));
}

TEST_P(LinearCandidate, WeightGradWritesOrAddsToTheTargetOnly) {
  const auto& [candidate, rows, in, out] = GetParam();
  const at::Tensor grad = random({rows, out}, at::kFloat), x = random({rows, in}, at::kFloat);
  const at::Tensor exact = at::mm(grad.to(at::kDouble).t(), x.to(at::kDouble));
  const std::int64_t count = in * out;
  const at::Tensor flat = at::full({count + 32}, 7.0, at::kFloat);
  const at::Tensor target = flat.narrow(0, 16, count).view({out, in});
  for (bool accumulate : {false, true}) {
    target.fill_(std::numeric_limits<double>::quiet_NaN());
    const at::Tensor before = random({out, in}, at::kFloat);
    if (accumulate) target.copy_(before);
    linear_weight_grad_by(candidate, grad, x, target, accumulate);
    expect_rounding_only(target, accumulate ? exact + before : exact,
                         norm(grad) * norm(x) + (accumulate ? norm(before) : 0));
    EXPECT_TRUE(flat.narrow(0, 0, 16).eq(7).all().item<bool>());
    EXPECT_TRUE(flat.narrow(0, 16 + count, 16).eq(7).all().item<bool>());
  }
}

TEST_P(LinearCandidate, RepeatsItsBitsAtOtherAddresses) {
  const auto& [candidate, rows, in, out] = GetParam();
  const at::Tensor x = random({rows, in}, at::kFloat), w = random({out, in}, at::kFloat);
  const at::Tensor first = linear_by(candidate, x, w, {});
  const auto moved = [](const at::Tensor& t, std::int64_t offset) {
    const at::Tensor memory = at::empty({t.numel() + 4096}, at::kFloat);
    const at::Tensor copy = memory.narrow(0, offset, t.numel()).view(t.sizes());
    copy.copy_(t);
    return copy;
  };
  for (std::int64_t offset : {16, 1024}) {  // 64 bytes, as every tensor is laid out
    EXPECT_TRUE(at::equal(linear_by(candidate, moved(x, offset), moved(w, offset), {}), first));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearCandidate, ::testing::ValuesIn(cases()),
                         [](const auto& test) {
                           return fmt::format("{}_{}x{}x{}", name_of(test.param.candidate),
                                              test.param.rows, test.param.in, test.param.out);
                         });

TEST(LinearCandidates, OtherTypesAndEmptyTensorsFallBack) {
  for (Candidate candidate : kCandidates) {
    const at::Tensor x = random({3, 4}), w = random({5, 4}), b = random({5});
    EXPECT_TRUE(at::equal(linear_by(candidate, x, w, b), at::addmm(b, x, w.t())));
    const at::Tensor none = random({0, 4}, at::kFloat), weight = random({5, 4}, at::kFloat);
    EXPECT_EQ(linear_by(candidate, none, weight, {}).sizes(), at::IntArrayRef({0, 5}));
    const at::Tensor target = undefined_target({5, 4}, at::kFloat);
    linear_weight_grad_by(candidate, random({0, 5}, at::kFloat), none, target, false);
    EXPECT_TRUE(target.eq(0).all().item<bool>());
  }
}

TEST(LinearCandidates, ExpandedGradientsAndTargetsWithGapsWork) {
  for (Candidate candidate : kCandidates) {
    const at::Tensor x = random({6, 4}, at::kFloat), w = random({5, 4}, at::kFloat);
    const at::Tensor ones = at::ones({1}, at::kFloat).expand({6, 5});
    EXPECT_TRUE(close_to(linear_input_grad_by(candidate, ones, w), w.sum(0).expand({6, 4}), 1e-6));
    const at::Tensor wide = at::full({5, 8}, 7.0, at::kFloat);
    linear_weight_grad_by(candidate, ones, x, wide.narrow(1, 0, 4), false);
    EXPECT_TRUE(close_to(wide.narrow(1, 0, 4), x.sum(0).expand({5, 4}), 1e-6));
    EXPECT_TRUE(wide.narrow(1, 4, 4).eq(7).all().item<bool>());
  }
}

TEST(LinearCandidates, TheOpsFollowTheTable) {
  // Candidates round differently, so bits tell which one ran.
  const at::Tensor x = random({2, 32, 301}, at::kFloat), w = random({203, 301}, at::kFloat);
  for (Candidate candidate : kCandidates) {
    TuningTable table;
    table.mode = TuneMode::kOn;
    table.entries = {{linear_key(Pass::kForward, x, 301, 203, false, false), candidate, {}}};
    set_tuning(table);
    EXPECT_TRUE(at::equal(ops::linear(x, w, {}), linear_by(candidate, x, w, {})));
  }
  set_tuning({});
}

TEST(LinearCandidates, AsksForTheKeyOfEachPass) {
  const at::Tensor x = random({2, 3, 4}, at::kFloat), w = random({5, 4}, at::kFloat),
                   b = random({5}, at::kFloat), grad = random({2, 3, 5}, at::kFloat);
  const at::Tensor target = undefined_target({5, 4}, at::kFloat);
  const KeyRecorder recorder;
  ops::linear(x, w, {});
  ops::linear(x, w, b);
  linear_input_grad(grad, w);
  linear_weight_grad(grad, x, target, false);
  linear_weight_grad(grad, x, target, true);
  const DType fp32 = DType::kFloat32;
  EXPECT_EQ(recorder.keys(),
            (std::vector<TuneKey>{{Pass::kForward, fp32, false, false, 6, 4, 5},
                                  {Pass::kForward, fp32, true, false, 6, 4, 5},
                                  {Pass::kInputGrad, fp32, false, false, 6, 4, 5},
                                  {Pass::kWeightGrad, fp32, false, false, 6, 4, 5},
                                  {Pass::kWeightGrad, fp32, false, true, 6, 4, 5}}));
}

}  // namespace
}  // namespace shardbench::ops

// The operations in ATen's operations against the host's kernels, on tensors of the CPU.
#include "common/ops/portable.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/dropout.h"
#include "common/ops/dtype.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/linear.h"
#include "common/ops/on_host.h"
#include "common/ops/rotary.h"
#include "common/ops/swiglu.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

constexpr at::ScalarType kAllTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

/// What two orders of adding up about a hundred numbers may differ by, and half a last place more
/// where the result is rounded to a narrow type.
double tolerance_of(at::ScalarType type) {
  if (type == at::kDouble) return 1e-15;
  if (type == at::kFloat) return 5e-7;
  return type == at::kHalf ? 1e-3 : 8e-3;
}

/// `f()` with the host's kernels and without.
template <typename F>
auto both(F f) {
  auto host = f();
  const PortableOnly scope;
  return std::pair{std::move(host), f()};
}

::testing::AssertionResult equal_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && at::equal(a, b)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "relative distance " << relative_distance(a, b);
}

TEST(OnHost, IsTheCpuUnlessATestSaysOtherwise) {
  const at::Tensor cpu = at::zeros({1}), meta = at::zeros({1}, at::device(at::kMeta));
  EXPECT_TRUE(on_host(cpu));
  EXPECT_FALSE(on_host(meta));
  {
    const PortableOnly outer;
    const PortableOnly inner;
    EXPECT_FALSE(on_host(cpu));
  }
  EXPECT_TRUE(on_host(cpu));
}

TEST(Portable, RmsNorm) {
  for (const at::ScalarType type : kAllTypes) {
    SCOPED_TRACE(at::toString(type));
    const at::Tensor x = random({3, 7, 50}, type), w = random({50}, type);
    const at::Tensor grad = random({3, 7, 50}, type);
    const auto [host, device] = both([&] { return rms_norm(x, w, 1e-5); });
    EXPECT_TRUE(close_to(device.y, host.y, tolerance_of(type)));
    EXPECT_EQ(device.y.scalar_type(), type);
    EXPECT_TRUE(close_to(device.rrms, host.rrms, tolerance_of(host.rrms.scalar_type())));
    EXPECT_EQ(device.rrms.scalar_type(), host.rrms.scalar_type());
    const auto [dx, portable_dx] =
        both([&, &rrms = host.rrms] { return rms_norm_input_grad(grad, x, rrms, w); });
    EXPECT_TRUE(close_to(portable_dx, dx, 4 * tolerance_of(type)));
    for (const bool accumulate : {false, true}) {
      const auto [dw, portable_dw] = both([&, &rrms = host.rrms] {
        const at::Tensor target = accumulate ? at::ones({50}, type) : undefined_target({50}, type);
        rms_norm_weight_grad(grad, x, rrms, target, accumulate);
        return target;
      });
      EXPECT_TRUE(close_to(portable_dw, dw, 2 * tolerance_of(type)));
    }
  }
}

TEST(Portable, RmsNormOfNoRows) {
  const PortableOnly scope;
  EXPECT_EQ(rms_norm(at::empty({0, 4}), at::ones({4}), 1e-5).y.sizes(), at::IntArrayRef({0, 4}));
}

/// The host has exponentials of its own, so bits may differ by a rounding or two.
TEST(Portable, CrossEntropy) {
  for (const at::ScalarType type : kAllTypes) {
    SCOPED_TRACE(at::toString(type));
    const at::Tensor logits = random({4, 5, 37}, type);
    const at::Tensor targets = random_indices(37, {4, 5});
    struct Run {
      CrossEntropyResult result;
      at::Tensor gradient;
    };
    const auto [host, device] = both([&] {
      Run run;
      const at::Tensor kept = logits.clone();
      run.result = cross_entropy(kept, targets);
      const at::Tensor grad = at::full({}, 0.7, run.result.loss.options());
      run.gradient = cross_entropy_backward(grad, kept, targets, run.result.logsumexp);
      return run;
    });
    EXPECT_EQ(device.result.loss.scalar_type(), host.result.loss.scalar_type());
    EXPECT_EQ(device.result.loss.dim(), 0);
    const bool wide = type == at::kDouble;
    EXPECT_TRUE(close_to(device.result.loss, host.result.loss, wide ? 1e-15 : 2e-7));
    const double roundings = wide ? 1e-15 : (type == at::kFloat ? 3e-7 : 0x1p-8);
    EXPECT_TRUE(close_to(device.gradient, host.gradient, roundings));
  }
}

TEST(Portable, GeluAndSwiglu) {
  for (const at::ScalarType type : kAllTypes) {
    SCOPED_TRACE(at::toString(type));
    const at::Tensor x = random({3, 41}, type), up = random({3, 41}, type);
    const at::Tensor grad = random({3, 41}, type);
    const auto [host, device] = both([&] {
      const SwigluGrads grads = swiglu_backward(grad, x, up, true, true);
      return std::vector<at::Tensor>{ops::gelu(x), ops::gelu_backward(grad, x), swiglu(x, up),
                                     grads.gate, grads.up};
    });
    const double roundings =
        type == at::kDouble ? 1e-15
                            : (type == at::kFloat ? 3e-7 : (type == at::kHalf ? 2e-3 : 0x1p-7));
    for (std::size_t i = 0; i < host.size(); ++i) {
      EXPECT_TRUE(close_to(device[i], host[i], roundings)) << i;
    }
  }
}

TEST(Portable, Embedding) {
  const at::Tensor weight = random({11, 6}, at::kFloat);
  const at::Tensor indices = random_indices(11, {5, 8});  // rows come again and again
  const auto [host, device] = both([&] { return ops::embedding(weight, indices); });
  EXPECT_TRUE(equal_bits(device, host));
  for (const at::ScalarType type : kAllTypes) {
    for (const at::ScalarType target_type : {type, at::kFloat}) {
      SCOPED_TRACE(fmt::format("{} to {}", at::toString(type), at::toString(target_type)));
      const at::Tensor grad = random({5, 8, 6}, type);
      for (const bool accumulate : {false, true}) {
        const auto [expected, target] = both([&] {
          const at::Tensor to =
              accumulate ? at::ones({11, 6}, target_type) : undefined_target({11, 6}, target_type);
          embedding_weight_grad(grad, indices, to, accumulate);
          return to;
        });
        EXPECT_TRUE(equal_bits(target, expected));
      }
    }
  }
}

TEST(Portable, Rotary) {
  const at::Tensor table = rotary_table(9, 8, 10000, at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(at::toString(type));
    const at::Tensor x = random({2, 7, 24}, type);
    const auto [turned, portable_turned] = both([&] { return rotary(x.clone(), table); });
    EXPECT_TRUE(equal_bits(portable_turned, turned));
    const auto [back, portable_back] = both([&, &y = turned] { return rotary_backward(y, table); });
    EXPECT_TRUE(equal_bits(portable_back, back));
  }
}

TEST(Portable, Dropout) {
  const ForwardContext context{3, 5, 1000, true};
  for (const at::ScalarType type : kAllTypes) {
    for (const std::int64_t width : {1, 6, 7}) {
      SCOPED_TRACE(fmt::format("{} {}", at::toString(type), width));
      const at::Tensor x = random({4, 3, width}, type);
      const auto [host, device] = both([&] { return dropout(x, 0.3, context, 77); });
      EXPECT_TRUE(equal_bits(device, host));
    }
  }
  const PortableOnly scope;
  EXPECT_EQ(dropout(at::empty({0, 3}), 0.3, context, 77).numel(), 0);
}

TEST(Portable, AttentionAndLinearTakePlainProducts) {
  const at::Tensor qkv = random({2, 9, 3 * 12}, at::kFloat), grad = random({2, 9, 12}, at::kFloat);
  const auto [host, device] = both([&] {
    const AttentionResult forward = causal_attention(qkv, 3);
    return std::pair{forward.out, causal_attention_backward(grad, qkv, forward, 3)};
  });
  EXPECT_TRUE(close_to(device.first, host.first, 1e-6));
  EXPECT_TRUE(close_to(device.second, host.second, 2e-6));
  const at::Tensor x = random({5, 12}, at::kFloat), w = random({4, 12}, at::kFloat);
  const auto [y, portable_y] = both([&] { return ops::linear(x, w, {}); });
  EXPECT_TRUE(close_to(portable_y, y, 1e-6));
}

}  // namespace
}  // namespace shardbench::ops

// Operations and the optimizer on a GPU against the host's kernels. Skipped only without a device.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/comm/nccl/load.h"
#include "common/comm/nccl/over_group.h"
#include "common/ops/attention.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/dropout.h"
#include "common/ops/embedding.h"
#include "common/ops/layer_norm.h"
#include "common/ops/linear.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rotary.h"
#include "common/optim/device_kernels.h"
#include "tests/support/numeric.h"

namespace shardbench::ops {
namespace {

using namespace shardbench::testing;  // NOLINT

constexpr double kSums = 2e-6;  ///< fp32 sums of a few hundred terms in two orders

class GpuOps : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto exists = [](const char* file) { return std::filesystem::exists(file); };
    if (!exists("/dev/nvidiactl") && !exists("/dev/dxg")) GTEST_SKIP() << "no CUDA device";
    const comm::GpuLibrary& library = comm::gpu_library();
    ASSERT_NE(library.torch, nullptr) << "built without LibTorch's CUDA side";
    comm::hooks_on(library, 0);
    // As on the CPU, where no product is rounded to TF32.
    at::globalContext().setFloat32MatmulPrecision("highest");
  }
  static at::Tensor there(const at::Tensor& tensor) { return tensor.to(at::Device(at::kCUDA, 0)); }
  static at::Tensor back(const at::Tensor& tensor) { return tensor.to(at::kCPU); }
};

TEST_F(GpuOps, Norms) {
  const at::Tensor x = random({6, 9, 200}, at::kFloat), w = random({200}, at::kFloat);
  const at::Tensor grad = random({6, 9, 200}, at::kFloat), b = random({200}, at::kFloat);
  const RmsNormResult host = rms_norm(x, w, 1e-5), device = rms_norm(there(x), there(w), 1e-5);
  EXPECT_TRUE(close_to(back(device.y), host.y, kSums));
  EXPECT_TRUE(close_to(back(rms_norm_input_grad(there(grad), there(x), device.rrms, there(w))),
                       rms_norm_input_grad(grad, x, host.rrms, w), kSums));
  const at::Tensor dw = at::empty({200}), device_dw = there(dw);
  rms_norm_weight_grad(grad, x, host.rrms, dw, false);
  rms_norm_weight_grad(there(grad), there(x), device.rrms, device_dw, false);
  EXPECT_TRUE(close_to(back(device_dw), dw, kSums));
  EXPECT_TRUE(close_to(back(layer_norm(there(x), there(w), there(b), 1e-5).y),
                       layer_norm(x, w, b, 1e-5).y, kSums));
}

TEST_F(GpuOps, CrossEntropy) {
  const at::Tensor logits = random({4, 5, 300}, at::kFloat);
  const at::Tensor targets = random_indices(300, {4, 5});
  const at::Tensor host = logits.clone(), device = there(logits);
  const CrossEntropyResult own = cross_entropy(host, targets);
  const CrossEntropyResult there_too = cross_entropy(device, there(targets));
  EXPECT_TRUE(close_to(back(there_too.loss), own.loss, kSums));
  const at::Tensor device_grad = cross_entropy_backward(at::ones_like(there_too.loss), device,
                                                        there(targets), there_too.logsumexp);
  EXPECT_TRUE(close_to(
      back(device_grad),
      cross_entropy_backward(at::ones_like(own.loss), host, targets, own.logsumexp), kSums));
}

/// Rows come again and again; the same bits twice, whatever the order of threads.
TEST_F(GpuOps, EmbeddingGradientIsTheSameTwice) {
  const at::Tensor indices = random_indices(7, {64, 64});
  const at::Tensor grad = random({64, 64, 96}, at::kFloat);
  const at::Tensor host = at::empty({7, 96});
  embedding_weight_grad(grad, indices, host, false);
  at::Tensor first;
  for (int round = 0; round < 3; ++round) {
    const at::Tensor target = there(at::empty({7, 96}));
    embedding_weight_grad(there(grad), there(indices), target, false);
    EXPECT_TRUE(close_to(back(target), host, kSums));
    if (round == 0) first = target;
    EXPECT_TRUE(at::equal(target, first));
  }
}

TEST_F(GpuOps, DropoutHasTheHostsMask) {
  const ForwardContext context{3, 5, 1000, true};
  const at::Tensor x = random({4, 31, 7}, at::kFloat);
  EXPECT_TRUE(at::equal(back(dropout(there(x), 0.3, context, 77)), dropout(x, 0.3, context, 77)));
}

TEST_F(GpuOps, RotaryAttentionAndLinear) {
  const at::Tensor table = rotary_table(9, 8, 10000, at::kFloat);
  const at::Tensor x = random({2, 7, 24}, at::kFloat);
  EXPECT_TRUE(close_to(back(rotary(there(x), there(table))), rotary(x.clone(), table), kSums));
  const at::Tensor qkv = random({2, 33, 3 * 48}, at::kFloat),
                   grad = random({2, 33, 48}, at::kFloat);
  const AttentionResult host = causal_attention(qkv, 3), device = causal_attention(there(qkv), 3);
  EXPECT_TRUE(close_to(back(device.out), host.out, kSums));
  EXPECT_TRUE(close_to(back(causal_attention_backward(there(grad), there(qkv), device, 3)),
                       causal_attention_backward(grad, qkv, host, 3), 4 * kSums));
  const at::Tensor rows = random({65, 128}, at::kFloat), w = random({40, 128}, at::kFloat);
  EXPECT_TRUE(
      close_to(back(ops::linear(there(rows), there(w), {})), ops::linear(rows, w, {}), kSums));
}

TEST_F(GpuOps, OptimizerAndNorm) {
  constexpr std::int64_t kCount = 100'003;
  const at::Tensor gradient = at::randn({kCount});
  std::vector<at::Tensor> host, device;
  for (int i = 0; i < 3; ++i) {
    host.push_back(at::rand({kCount}));
    device.push_back(there(host.back()));
  }
  const optim::AdamWStep step{0.1f, 0.1f, 0.9f, 0.95f, 1e-8f, 0.2f, 1.5f, 0.5f};
  optim::adamw(step, kCount, gradient.const_data_ptr<float>(), host[0].data_ptr<float>(),
               host[1].data_ptr<float>(), host[2].data_ptr<float>());
  optim::on_device::adamw(step, there(gradient), device[0], device[1], device[2]);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(close_to(back(device[i]), host[i], 1e-7)) << i;
  const at::Tensor rows = random({50, 301}, at::kFloat);
  const at::Tensor sums = back(optim::on_device::sums_of_squares(there(rows)));
  EXPECT_TRUE(at::equal(sums, optim::on_device::sums_of_squares(rows)));
}

}  // namespace
}  // namespace shardbench::ops

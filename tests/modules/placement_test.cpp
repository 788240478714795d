// What of a step lies where, and when the host reads a device.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/comm/local/local.h"
#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/models/build.h"
#include "common/train/accelerator.h"
#include "common/train/session.h"
#include "tests/support/guarded_device.h"
#include "tests/support/parity_run.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

at::Tensor tokens_of(const train::RunConfig& config) {
  return at::randint(config.model.vocab, {config.batch, config.seq}, at::kLong)
      .to(guarded_device());
}

/// The trap itself: what the other tests rest on.
TEST(Placement, TheHostCannotTouchTheDevice) {
  const at::Tensor there = at::ones({8}).to(guarded_device());
  EXPECT_TRUE(is_guarded(there.data_ptr()));
  EXPECT_EQ(there.device(), guarded_device());
  const int before = reads_by_host();
  const at::Tensor sum = there.mul(3).add_(there);
  EXPECT_EQ(reads_by_host(), before);
  EXPECT_EQ(sum.sum().item<float>(), 32);
  EXPECT_GT(reads_by_host(), before);
  EXPECT_EXIT(std::memset(there.data_ptr(), 0, 4), ::testing::KilledBySignal(SIGSEGV), "");
}

/// The host waits for a device where it reads it: the losses, and with clipping the norm.
TEST(Placement, AStepIsReadAtItsEndOnly) {
  for (const std::string& name : strategy_names()) {
    for (const double max_norm : {0.0, 0.5}) {
      SCOPED_TRACE(name);
      const train::RunConfig config = small_run("gpt2-nano");
      const std::unique_ptr<Model> model = models::build(config.model);
      model->set_device(guarded_device());
      const auto ranks = over_guarded_device(comm::make_local());
      train::SessionOptions options;
      options.max_norm = max_norm;
      train::Session session(*model, all_strategies().find(name).make(), *ranks, options);
      const at::Tensor tokens = tokens_of(config);
      const auto loss = [&](int) { return (*model)(tokens, tokens); };
      const double first = session.step(loss).loss;
      const int before = reads_by_host();
      int in_backward = -1;
      const double second = session
                                .step(
                                    [&](int micro) {
                                      in_backward = reads_by_host();
                                      return loss(micro);
                                    },
                                    /*micro_batches=*/2)
                                .loss;
      EXPECT_EQ(in_backward, before);
      EXPECT_EQ(reads_by_host() - before, 2 + (max_norm > 0 ? 1 : 0));
      EXPECT_LT(second, first);
    }
  }
}

TEST(Placement, AModelMovesOnlyBeforeAStrategy) {
  const train::RunConfig config = small_run("convnet");
  const std::unique_ptr<Model> model = models::build(config.model);
  model->set_device(guarded_device());
  EXPECT_FALSE(model->buffers().empty());
  for (const ModuleBuffer* buffer : model->buffers()) {
    EXPECT_EQ(buffer->tensor.device(), guarded_device());
  }
  const auto ranks = over_guarded_device(comm::make_local());
  {
    train::Session session(*model, all_strategies().find("fsdp").make(), *ranks);
    EXPECT_THROW(model->set_device(at::kCPU), InvariantError);
  }
  model->set_device(at::kCPU);
  for (const Parameter* p : model->parameters()) EXPECT_TRUE(p->device().is_cpu());
}

const void* retagged = nullptr;

TEST(Placement, DeviceMemoryIsBookedByWhoeverBooksIt) {
  const at::Tensor there = at::ones({8}).to(guarded_device());
  memory::retag(there, memory::Category::kActivation);  // nobody yet
  memory::retag_on_devices_by([](const void* data, memory::Category category) {
    EXPECT_EQ(category, memory::Category::kGrad);
    retagged = data;
  });
  memory::retag(at::ones({8}), memory::Category::kGrad);  // of the CPU
  EXPECT_EQ(retagged, nullptr);
  memory::retag(there, memory::Category::kGrad);
  EXPECT_EQ(retagged, there.data_ptr());
  memory::retag_on_devices_by(nullptr);
}

TEST(Placement, AFullDeviceIsOneLine) {
  constexpr std::int64_t kMib = 1 << 20;
  comm::DeviceMemoryBook::Refusal refusal{
      memory::Category::kUnshardedGrad, 150 * kMib, 8192 * kMib, 20 * kMib, {}};
  refusal.live[static_cast<std::size_t>(memory::Category::kParam)] = 4000 * kMib;
  refusal.live[static_cast<std::size_t>(memory::Category::kActivation)] = 3000 * kMib;
  const std::string text = train::out_of_memory_text(refusal);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(text.find("150 MiB more wanted for unsharded_grad"), std::string::npos) << text;
  EXPECT_NE(text.find("param 4,000, activation 3,000"), std::string::npos) << text;
  refusal.category = memory::Category::kOther;  // in an operation
  EXPECT_NE(train::out_of_memory_text(refusal).find("for activation or temp"), std::string::npos);
}

TEST(Placement, AReshardedParameterOnADeviceIsANamedError) {
  const train::RunConfig config = small_run("mlp");
  const std::unique_ptr<Model> model = models::build(config.model);
  model->set_device(guarded_device());
  const auto ranks = over_guarded_device(comm::make_local());
  train::Session session(*model, all_strategies().find("fsdp").make(), *ranks);
  EXPECT_THROW(model->parameters()[0]->tensor(), InvariantError);
  EXPECT_EQ(model->parameters()[0]->device(), guarded_device());
}

}  // namespace
}  // namespace shardbench::testing

// Batch normalisation under every strategy: its buffers are rank 0's, and several forwards before
// one backward are allowed.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/modules/layers/batch_norm.h"
#include "common/modules/layers/linear.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

class Critic : public Module {
 public:
  Critic() {
    in_ = &add_child<Linear>("in", 6, 10);
    norm_ = &add_child<BatchNorm>("norm", 10);
    out_ = &add_child<Linear>("out", 10, 1);
  }
  std::string_view class_name() const override { return "Critic"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    return (*out_)(at::tanh((*norm_)((*in_)(inputs[0])))).mean();
  }

 private:
  Linear* in_;
  BatchNorm* norm_;
  Linear* out_;
};

StrategyCase critic_case() {
  StrategyCase test;
  test.build = [] { return std::make_unique<Model>("critic", std::make_unique<Critic>()); };
  test.forward = [](Model& model, int step, int micro, int rank) {
    const at::Tensor fake = model(fixed({5, 6}, step, micro, rank));
    const at::Tensor real = model(fixed({5, 6}, step + 40, micro, rank));
    return std::vector<at::Tensor>{fake - real};  // one backward through both forwards
  };
  return test;
}

TEST(BatchStatistics, TwoForwardsThenOneBackward) {
  for (const char* units : {"block", "tensor", "whole"}) {
    StrategyCase test = critic_case();
    test.units = units;
    for (const std::string& strategy : strategy_names()) {
      for (int world : {1, 2, 3}) EXPECT_EQ(run_case(test, strategy, world), "") << units;
    }
  }
}

TEST(BatchStatistics, EveryRankCountsItsOwnForwards) {
  StrategyCase test = critic_case();
  test.steps = 2;
  test.after_step = [](const StrategyCase::Seen& seen) {
    // Training normalises with the micro-batch, so ranks' running statistics part; they are made
    // equal before an evaluation, not here.
    const at::Tensor& mean = seen.model.buffers()[0]->tensor;
    if (seen.model.buffers()[0]->name != "norm.running_mean") {
      throw std::runtime_error("unexpected name " + seen.model.buffers()[0]->name);
    }
    if (mean.abs().sum().item<float>() == 0) throw std::runtime_error("statistics never moved");
  };
  for (const std::string& strategy : strategy_names()) {
    EXPECT_EQ(run_case(test, strategy, 2), "");
  }
}

}  // namespace
}  // namespace shardbench::testing

// The one-process strategy against plain ATen autograd and torch's own AdamW: the foundation that
// every other strategy is compared with.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "common/comm/local/local.h"
#include "common/models/build.h"
#include "common/optim/optimizer.h"
#include "common/train/single.h"
#include "tests/support/numeric.h"
#include "tests/support/reference_gpt2.h"

namespace shardbench::testing {
namespace {

class Single : public ::testing::TestWithParam<bool> {};

TEST_P(Single, EqualsAtenAutogradWithTorchAdamW) {
  models::ModelConfig config = models::preset("gpt2-nano");
  config.layers = 3;
  config.heads = 3;
  config.hidden = 48;
  config.tied = GetParam();
  const auto model = models::build(config);
  const auto comm = comm::make_local();
  train::Single strategy;
  strategy.attach({model.get(), comm.get(), {}, 11, {}});
  train::OptimizerConfig settings;
  const auto optimizer = optim::make_optimizer(settings, strategy.owned());

  Weights weights;
  std::vector<at::Tensor> decayed, plain;
  for (Parameter* p : model->parameters()) {
    weights[p->name()] = p->tensor().clone().requires_grad_(true);
    (p->decay() ? decayed : plain).push_back(weights[p->name()]);
  }
  const auto group = [&](const std::vector<at::Tensor>& tensors, double decay) {
    auto options = std::make_unique<torch::optim::AdamWOptions>(settings.lr);
    options->betas({settings.beta1, settings.beta2}).eps(settings.eps).weight_decay(decay);
    return torch::optim::OptimizerParamGroup(tensors, std::move(options));
  };
  torch::optim::AdamW torch_adamw(std::vector<torch::optim::OptimizerParamGroup>{
      group(decayed, settings.weight_decay), group(plain, 0)});

  at::manual_seed(5);
  for (int step = 0; step < 10; ++step) {
    const at::Tensor tokens = random_indices(config.vocab, {4, 24});
    const at::Tensor targets = random_indices(config.vocab, {4, 24});
    strategy.begin_step();
    strategy.begin_micro_batch(0, 1);
    const at::Tensor loss = (*model)(tokens, targets);
    loss.backward();
    strategy.finish_gradients();

    torch_adamw.zero_grad();
    const at::Tensor expected = reference_gpt2(config, weights, tokens, targets);
    expected.backward();
    EXPECT_NEAR(loss.item<double>() / expected.item<double>(), 1, 1e-5) << "step " << step;
    if (step == 0) {
      double all = 0;
      for (const auto& [name, weight] : weights) all += weight.grad().square().sum().item<double>();
      for (const OwnedPiece& piece : strategy.owned().pieces) {
        const at::Tensor theirs = weights[piece.parameter->name()].grad().view({-1});
        const at::Tensor ours = at::from_blob(piece.gradient, {piece.count}, at::kFloat);
        const double difference = (ours - theirs).norm().item<double>();
        EXPECT_LT(difference, 1e-5 * theirs.norm().item<double>() + 1e-9 * std::sqrt(all))
            << piece.parameter->name();
      }
    }
    optimizer->step(strategy.owned(), strategy.used(), 1.0f);
    strategy.after_optimizer();
    torch_adamw.step();
  }
  model->detach();
}

INSTANTIATE_TEST_SUITE_P(TiedAndUntied, Single, ::testing::Bool());

}  // namespace
}  // namespace shardbench::testing

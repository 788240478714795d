#include "common/models/convnet.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/modules/layers/conv.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/pool.h"
#include "common/modules/layers/support.h"
#include "common/ops/dtype.h"

namespace shardbench::models {

ConvBlock::ConvBlock(const ConvnetStage& stage) : pool_(stage.pool) {
  const ConvOptions options = {
      .kernel = kConvnetKernel, .stride = 1, .padding = kConvnetKernel / 2, .bias = false};
  if (stage.size.size() == 1) {
    conv_ = &add_child<Conv1d>("conv", stage.in, stage.out, options);
  } else if (stage.size.size() == 2) {
    conv_ = &add_child<Conv2d>("conv", stage.in, stage.out, options);
  } else {
    conv_ = &add_child<Conv3d>("conv", stage.in, stage.out, options);
  }
  norm_ = &add_child<BatchNorm>("norm", stage.out);
}

at::Tensor ConvBlock::forward(const Tensors& inputs) {
  const at::Tensor x = functional::relu((*norm_)((*conv_)(inputs[0])));
  return pool_.empty() ? x : functional::max_pool(x, ops::PoolWindow::tiles(pool_));
}

ConvNet::ConvNet(const ModelConfig& config)
    : image_(config.image),
      image_text_(image_text(config)),
      elements_(image_elements(config)),
      scale_(config.vocab > 1 ? 2.0 / static_cast<double>(config.vocab - 1) : 0.0) {
  const std::vector<ConvnetStage> stages = convnet_stages(config);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages_.push_back(&add_child<ConvBlock>(fmt::format("stages.{}", i), stages[i]));
  }
  head_ = &add_child<Linear>("head", stages.back().out, config.vocab);
}

at::Tensor ConvNet::images(const at::Tensor& tokens) const {
  std::vector<std::int64_t> sizes = {tokens.size(0)};
  sizes.insert(sizes.end(), image_.begin(), image_.end());
  const at::ScalarType dtype = ops::scalar_type(head_->weight().dtype());
  return as_activation(tokens.to(at::kFloat).mul_(scale_).sub_(1).to(dtype).view(sizes));
}

at::Tensor ConvNet::forward(const Tensors& inputs) {
  const at::Tensor& tokens = inputs[0];
  if (tokens.size(1) != elements_) {
    throw UserError::format("a window of {} tokens is no image of {}; give {}", tokens.size(1),
                            image_text_, elements_);
  }
  at::Tensor x = images(tokens.contiguous());
  for (ConvBlock* stage : stages_) x = (*stage)(x);
  const at::Tensor logits = (*head_)(functional::global_avg_pool(x));
  if (inputs.size() == 1) return logits;
  return functional::cross_entropy(logits, inputs[1].select(1, -1).contiguous());
}

}  // namespace shardbench::models

#include "common/models/mlp_model.h"

#include <ATen/ATen.h>

#include <cmath>

#include "common/core/error.h"
#include "common/modules/layers/functional.h"

namespace shardbench::models {

MLPLayer::MLPLayer(std::int64_t width, double dropout)
    // He et al. 2015, equation 10: keeps the variance through the layers.
    : fc_(&add_child<Linear>("fc", width, width, true,
                             Init::normal(std::sqrt(2.0 / static_cast<double>(width))))),
      dropout_(&add_child<Dropout>("dropout", dropout)) {}

at::Tensor MLPLayer::forward(const Tensors& inputs) {
  return (*dropout_)(functional::gelu((*fc_)(inputs[0])));
}

MLPModel::MLPModel(const ModelConfig& config)
    : context_(config.context),
      embed_(&add_child<Embedding>("embed", config.vocab, config.hidden, Init::normal(1),
                                   /*by_token=*/true)) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    layers_.push_back(
        &add_child<MLPLayer>(fmt::format("layers.{}", layer), config.hidden, config.dropout));
  }
  head_ = &add_child<Linear>("head", config.hidden, config.vocab);
}

at::Tensor MLPModel::forward(const Tensors& inputs) {
  const std::int64_t length = inputs[0].size(1);
  if (length > context_) {
    throw UserError::format("a sequence of {} tokens exceeds the model's context of {}", length,
                            context_);
  }
  at::Tensor x = (*embed_)(inputs[0]);
  for (MLPLayer* layer : layers_) x = (*layer)(x);
  at::Tensor logits = (*head_)(x);
  return inputs.size() == 1 ? logits : functional::cross_entropy(logits, inputs[1]);
}

}  // namespace shardbench::models

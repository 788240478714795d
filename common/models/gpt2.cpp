#include "common/models/gpt2.h"

#include <ATen/ATen.h>

#include <cmath>

#include "common/core/error.h"
#include "common/models/fields.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/split_head.h"

namespace shardbench::models {

GPT2::GPT2(const ModelConfig& config) : context_(config.context) {
  const Init init = Init::normal(0.02);
  const double residual_stddev = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  wte_ = &add_child<Embedding>("wte", config.vocab, config.hidden, init, /*by_token=*/true);
  wpe_ = &add_child<Embedding>("wpe", config.context, config.hidden, init);
  dropout_ = &add_child<Dropout>("dropout", config.dropout);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(&add_child<TransformerBlock>(fmt::format("h.{}", layer), config.hidden,
                                                   config.heads, residual_stddev, config.dropout));
  }
  ln_f_ = &add_child<LayerNorm>("ln_f", config.hidden);
  if (config.tied) {
    lm_head_ = &add_child<Linear>("lm_head", wte_->weight());
  } else if (config.split_head > 1) {
    lm_head_ = &add_child<SplitHead>("lm_head", config.hidden, head_rows(config), init);
  } else {
    lm_head_ = &add_child<Linear>("lm_head", config.hidden, config.vocab, false, init);
  }
}

at::Tensor GPT2::forward(const Tensors& inputs) {
  const at::Tensor& tokens = inputs[0];
  const std::int64_t length = tokens.size(1);
  if (length > context_) {
    throw UserError::format("a sequence of {} tokens exceeds the model's context of {}", length,
                            context_);
  }
  const at::Tensor positions = at::arange(length, tokens.options());
  at::Tensor x = (*dropout_)(functional::add_to_each((*wte_)(tokens), (*wpe_)(positions)));
  for (TransformerBlock* block : blocks_) x = (*block)(x);
  at::Tensor logits = (*lm_head_)((*ln_f_)(x));
  return inputs.size() == 1 ? logits : functional::cross_entropy(logits, inputs[1]);
}

}  // namespace shardbench::models

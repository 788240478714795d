#include "common/models/llama.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>

#include "common/core/error.h"
#include "common/models/fields.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/split_head.h"

namespace shardbench::models {

Llama::Llama(const ModelConfig& config) : context_(config.context) {
  const Init init = Init::normal(0.02);
  const LlamaSizes sizes = {
      .width = config.hidden,
      .heads = config.heads,
      .kv_heads = kv_heads_of(config),
      .feed_forward = config.feed_forward,
      .qkv_bias = config.qkv_bias,
      .norm_eps = config.norm_eps,
      .residual_stddev = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers))};
  const auto rotary =
      std::make_shared<RotaryTable>(config.hidden / config.heads, config.rope_theta);
  embed_ = &add_child<Embedding>("embed", config.vocab, config.hidden, init, /*by_token=*/true);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(&add_child<LlamaBlock>(fmt::format("layers.{}", layer), sizes, rotary));
  }
  norm_ = &add_child<RMSNorm>("norm", config.hidden, config.norm_eps);
  if (config.tied) {
    head_ = &add_child<Linear>("head", embed_->weight());
  } else if (config.split_head > 1) {
    head_ = &add_child<SplitHead>("head", config.hidden, head_rows(config), init);
  } else {
    head_ = &add_child<Linear>("head", config.hidden, config.vocab, false, init);
  }
}

at::Tensor Llama::forward(const Tensors& inputs) {
  const at::Tensor& tokens = inputs[0];
  const std::int64_t length = tokens.size(1);
  if (length > context_) {
    throw UserError::format("a sequence of {} tokens exceeds the model's context of {}", length,
                            context_);
  }
  at::Tensor x = (*embed_)(tokens);
  for (LlamaBlock* block : blocks_) x = (*block)(x);
  at::Tensor logits = (*head_)((*norm_)(x));
  return inputs.size() == 1 ? logits : functional::cross_entropy(logits, inputs[1]);
}

}  // namespace shardbench::models

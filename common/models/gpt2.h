#pragma once

#include "common/models/config.h"
#include "common/modules/layers/dropout.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/linear.h"
#include "common/modules/layers/transformer_block.h"
#include "common/modules/module.h"

namespace shardbench::models {

/// GPT-2 (Radford et al. 2019): token and position embeddings, pre-norm blocks, final norm, and a
/// head without bias that by default shares the token embedding. Starts as GPT-2 does: normal with
/// 0.02, projections into the residual stream with 0.02 / sqrt(2 * layers), biases 0, norms 1 / 0.
class GPT2 : public Module {
 public:
  explicit GPT2(const ModelConfig& config);

  std::string_view class_name() const override { return "GPT2"; }

 protected:
  /// (tokens int64 [B, T], targets int64 [B, T]) -> the mean loss; (tokens) -> logits
  /// [B, T, vocab]. Throws UserError when T exceeds the context.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::int64_t context_;
  Embedding* wte_;
  Embedding* wpe_;
  Dropout* dropout_;
  std::vector<TransformerBlock*> blocks_;
  LayerNorm* ln_f_;
  Module* lm_head_;  ///< Linear or SplitHead
};

}  // namespace shardbench::models

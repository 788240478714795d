#pragma once

#include "common/models/config.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/linear.h"
#include "common/modules/layers/llama_block.h"
#include "common/modules/layers/rms_norm.h"
#include "common/modules/module.h"

namespace shardbench::models {

/// Llama (Touvron et al. 2023): token embedding, pre-norm blocks with rotary positions, final norm
/// and a head without bias, by default with its own weights. Starts normal with 0.02, matrices that
/// feed the residual stream with 0.02 / sqrt(2 * layers), norms 1, biases 0.
class Llama : public Module {
 public:
  explicit Llama(const ModelConfig& config);

  std::string_view class_name() const override { return "Llama"; }

 protected:
  /// (tokens int64 [B, T], targets int64 [B, T]) -> the mean loss; (tokens) -> logits
  /// [B, T, vocab]. Throws UserError when T exceeds the context.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::int64_t context_;
  Embedding* embed_;
  std::vector<LlamaBlock*> blocks_;
  RMSNorm* norm_;
  Module* head_;  ///< Linear or SplitHead
};

}  // namespace shardbench::models

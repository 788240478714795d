#pragma once

#include "common/models/config.h"
#include "common/modules/layers/dropout.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/linear.h"
#include "common/modules/module.h"

namespace shardbench::models {

/// One hidden layer: fc (Linear), GELU, dropout.
class MLPLayer : public Module {
 public:
  explicit MLPLayer(std::int64_t width, double dropout = 0);
  std::string_view class_name() const override { return "MLPLayer"; }

 protected:
  /// (x [..., width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Linear* fc_;
  Dropout* dropout_;
};

/// A next-token model without attention: each token's embedding goes through hidden layers to
/// scores for the token after it. Small, with widths that need not divide by anything.
class MLPModel : public Module {
 public:
  explicit MLPModel(const ModelConfig& config);
  std::string_view class_name() const override { return "MLPModel"; }

 protected:
  /// (tokens int64 [B, T], targets int64 [B, T]) -> the mean loss; (tokens) -> logits
  /// [B, T, vocab]. Throws UserError when T exceeds the context.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::int64_t context_;
  Embedding* embed_;
  std::vector<MLPLayer*> layers_;
  Linear* head_;
};

}  // namespace shardbench::models

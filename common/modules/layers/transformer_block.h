#pragma once

#include "common/modules/layers/attention.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/mlp.h"
#include "common/modules/module.h"

namespace shardbench {

/// A GPT-2 block: x + attn(ln_1(x)), then x + mlp(ln_2(x)).
class TransformerBlock : public Module {
 public:
  TransformerBlock(std::int64_t width, std::int64_t heads, double residual_stddev,
                   double dropout = 0);

  std::string_view class_name() const override { return "TransformerBlock"; }

 protected:
  /// (x [B, T, width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  LayerNorm* ln_1_;
  CausalSelfAttention* attn_;
  LayerNorm* ln_2_;
  MLP* mlp_;
};

}  // namespace shardbench

#pragma once

#include "common/modules/layers/dropout.h"
#include "common/modules/layers/linear.h"
#include "common/modules/module.h"

namespace shardbench {

/// Multi-head causal self-attention as in GPT-2: qkv (Linear to 3 * width), attention, proj
/// (Linear), dropout. Attention weights themselves are not dropped.
class CausalSelfAttention : public Module {
 public:
  /// `residual_stddev`: of proj.weight, which feeds the residual stream.
  CausalSelfAttention(std::int64_t width, std::int64_t heads, double residual_stddev,
                      double dropout = 0);

  std::string_view class_name() const override { return "CausalSelfAttention"; }

 protected:
  /// (x [B, T, width]) -> [B, T, width].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::int64_t heads_;
  Linear* qkv_;
  Linear* proj_;
  Dropout* dropout_;
};

}  // namespace shardbench

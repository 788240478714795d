#include "common/modules/layers/transformer_block.h"

#include <ATen/ATen.h>

#include "common/modules/layers/functional.h"

namespace shardbench {

TransformerBlock::TransformerBlock(std::int64_t width, std::int64_t heads, double residual_stddev,
                                   double dropout)
    : ln_1_(&add_child<LayerNorm>("ln_1", width)),
      attn_(&add_child<CausalSelfAttention>("attn", width, heads, residual_stddev, dropout)),
      ln_2_(&add_child<LayerNorm>("ln_2", width)),
      mlp_(&add_child<MLP>("mlp", width, residual_stddev, dropout)) {}

at::Tensor TransformerBlock::forward(const Tensors& inputs) {
  const at::Tensor x = functional::residual_add(inputs[0], (*attn_)((*ln_1_)(inputs[0])));
  return functional::residual_add(x, (*mlp_)((*ln_2_)(x)));
}

}  // namespace shardbench

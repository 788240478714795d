#include "common/modules/layers/llama_block.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/modules/layers/functional.h"

namespace shardbench {

LlamaBlock::LlamaBlock(const LlamaSizes& sizes, std::shared_ptr<RotaryTable> rotary)
    : attn_norm_(&add_child<RMSNorm>("attn_norm", sizes.width, sizes.norm_eps)),
      attn_(&add_child<GroupedQueryAttention>("attn", sizes, std::move(rotary))),
      mlp_norm_(&add_child<RMSNorm>("mlp_norm", sizes.width, sizes.norm_eps)),
      mlp_(&add_child<SwiGLU>("mlp", sizes.width, sizes.feed_forward, sizes.residual_stddev)) {}

at::Tensor LlamaBlock::forward(const Tensors& inputs) {
  const at::Tensor x = functional::residual_add(inputs[0], (*attn_)((*attn_norm_)(inputs[0])));
  return functional::residual_add(x, (*mlp_)((*mlp_norm_)(x)));
}

}  // namespace shardbench

#pragma once

#include <memory>

#include "common/modules/layers/llama_attention.h"
#include "common/modules/layers/rms_norm.h"
#include "common/modules/layers/swiglu.h"
#include "common/modules/module.h"

namespace shardbench {

/// A Llama block: x + attn(attn_norm(x)), then x + mlp(mlp_norm(x)).
class LlamaBlock : public Module {
 public:
  LlamaBlock(const LlamaSizes& sizes, std::shared_ptr<RotaryTable> rotary);

  std::string_view class_name() const override { return "LlamaBlock"; }

 protected:
  /// (x [B, T, width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  RMSNorm* attn_norm_;
  GroupedQueryAttention* attn_;
  RMSNorm* mlp_norm_;
  SwiGLU* mlp_;
};

}  // namespace shardbench

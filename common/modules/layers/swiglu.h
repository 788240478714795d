#pragma once

#include "common/modules/layers/linear.h"
#include "common/modules/module.h"

namespace shardbench {

/// The feed-forward half of a Llama block: down(silu(gate(x)) * up(x)), three Linear layers
/// without bias.
class SwiGLU : public Module {
 public:
  /// `residual_stddev`: of down.weight, which feeds the residual stream.
  SwiGLU(std::int64_t width, std::int64_t inner, double residual_stddev);

  std::string_view class_name() const override { return "SwiGLU"; }

 protected:
  /// (x [..., width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Linear* gate_;
  Linear* up_;
  Linear* down_;
};

}  // namespace shardbench

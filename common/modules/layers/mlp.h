#pragma once

#include "common/modules/layers/dropout.h"
#include "common/modules/layers/linear.h"
#include "common/modules/module.h"

namespace shardbench {

/// The feed-forward half of a transformer block: fc (Linear to 4 * width), GELU, proj (Linear
/// back), dropout.
class MLP : public Module {
 public:
  /// `residual_stddev`: of proj.weight, which feeds the residual stream.
  MLP(std::int64_t width, double residual_stddev, double dropout = 0);

  std::string_view class_name() const override { return "MLP"; }

 protected:
  /// (x [..., width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Linear* fc_;
  Linear* proj_;
  Dropout* dropout_;
};

}  // namespace shardbench

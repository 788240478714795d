#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// Layer normalisation over the last dimension. Parameters: weight [width] (starts at 1) and bias
/// [width] (0). Keeps its input and two numbers per row.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t width, double eps = 1e-5);

  std::string_view class_name() const override { return "LayerNorm"; }

 protected:
  /// (x [..., width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Parameter* weight_;
  Parameter* bias_;
  double eps_;
};

}  // namespace shardbench

#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// Root-mean-square normalisation over the last dimension. Parameter: weight [width] (starts at
/// 1). Keeps its input and one number per row.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(std::int64_t width, double eps = 1e-5);

  std::string_view class_name() const override { return "RMSNorm"; }

 protected:
  /// (x [..., width]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Parameter* weight_;
  double eps_;
};

}  // namespace shardbench

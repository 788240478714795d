#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// y = x W^T + b over the last dimension. Parameters: weight [out, in] and, unless left out, bias
/// [out], which starts at 0. Keeps its input for the weight's gradient.
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool bias, Init weight_init);
  /// Uniform in (-1/sqrt(in), 1/sqrt(in)), as torch's Linear starts.
  Linear(std::int64_t in, std::int64_t out, bool bias = true);
  /// Without parameters of its own: uses `weight` [out, in] of another module (tied weights).
  explicit Linear(Parameter& weight);

  std::string_view class_name() const override { return "Linear"; }
  Parameter& weight() { return *weight_; }

 protected:
  /// (x [..., in]) -> [..., out].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace shardbench

#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// Dropout whose masks follow from ops::forward_context() and the module's path alone. Keeps
/// nothing; with p = 0 or outside training it passes its input on, at no cost.
class Dropout : public Module {
 public:
  explicit Dropout(double p);

  std::string_view class_name() const override { return "Dropout"; }

 protected:
  /// (x [samples, ...]) -> the same shape.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  double p_;
};

}  // namespace shardbench

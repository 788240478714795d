#pragma once

#include <ATen/ATen.h>

#include <algorithm>

#include "common/modules/module.h"
#include "common/ops/dtype.h"

namespace shardbench::train {

/// Lets a model run for the sake of its shapes: all weights share one memory, full of zeros, and
/// all gradients another, each as large as the largest tensor.
class ShapesOnly : public Hooks {
 public:
  /// Gradients are written in `gradient_dtype`.
  ShapesOnly(Model& model, DType compute_dtype, DType gradient_dtype) : model_(model) {
    std::int64_t largest = 0;
    for (const Parameter* p : model.parameters()) largest = std::max(largest, p->numel());
    weights_ = at::zeros({largest}, at::TensorOptions().dtype(ops::scalar_type(compute_dtype)));
    gradients_ = at::zeros({largest}, at::TensorOptions().dtype(ops::scalar_type(gradient_dtype)));
    for (Parameter* p : model.parameters()) {
      p->set_dtype(compute_dtype);
      p->bind(weights_.mutable_data_ptr());
    }
    model.attach(*this, {sharding::UnitPolicy::Kind::kWhole, 0, ""});
  }
  ~ShapesOnly() override {
    model_.detach();
    for (Parameter* p : model_.parameters()) p->unbind();
  }

  void before_forward(Unit&) override {}
  void after_forward(Unit&) override {}
  void before_backward(Unit&) override {}
  at::Tensor gradient_target(Parameter& parameter) override {
    return gradients_.narrow(0, 0, parameter.numel()).view(parameter.dims());
  }
  void gradient_ready(Parameter&) override {}
  void after_backward(Unit&) override {}
  void end_of_backward() override {}

 private:
  Model& model_;
  at::Tensor weights_;
  at::Tensor gradients_;
};

}  // namespace shardbench::train

#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/modules/layers/linear.h"
#include "common/ops/dtype.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {

/// A root made of parts in a row, with mean square of the output as loss.
class Chain : public Module {
 public:
  std::string_view class_name() const override { return "Chain"; }
  template <typename M, typename... Args>
  M& add(std::string name, Args&&... args) {
    M& child = add_child<M>(std::move(name), std::forward<Args>(args)...);
    parts_.push_back(&child);
    return child;
  }

 protected:
  at::Tensor forward(const Tensors& inputs) override {
    at::Tensor x = inputs[0];
    for (Module* part : parts_) x = (*part)(x);
    return x.to(at::kFloat).square().mean();
  }
  std::vector<Module*> parts_;
};

/// Multiplies by one learned number, written in plain ATen calls.
class Scale : public Module {
 public:
  explicit Scale(std::vector<std::int64_t> dims) {
    value_ = &add_parameter("value", std::move(dims), Init::constant(1.5));
  }
  std::string_view class_name() const override { return "Scale"; }

 protected:
  at::Tensor forward(const Tensors& inputs) override { return inputs[0] * value_->tracked(); }

 private:
  Parameter* value_;
};

inline std::function<std::vector<at::Tensor>(Model&, int, int, int)> feed(
    std::int64_t width, std::int64_t rows = 3, DType dtype = DType::kFloat32) {
  return [=](Model& model, int step, int micro, int rank) {
    const at::Tensor x = fixed({rows, width}, step, micro, rank).to(ops::scalar_type(dtype));
    return std::vector<at::Tensor>{model(x)};
  };
}

/// A chain that computes in `dtype`.
inline StrategyCase chain_case(std::function<void(Chain&)> fill, std::int64_t width,
                               DType dtype = DType::kFloat32) {
  StrategyCase test;
  test.build = [fill = std::move(fill)] {
    auto root = std::make_unique<Chain>();
    fill(*root);
    return std::make_unique<Model>("chain", std::move(root));
  };
  test.options.compute_dtype = dtype;
  test.forward = feed(width, 3, dtype);
  return test;
}

}  // namespace shardbench::testing

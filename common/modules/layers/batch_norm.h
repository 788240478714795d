#pragma once

#include "common/modules/module.h"

namespace shardbench {

/// Batch normalisation of [N, channels, ...] per channel. Parameters: weight [channels] (starts at
/// 1) and bias [channels] (0). Buffers: running_mean (0) and running_var (1). While
/// ops::forward_context() says training, it normalises with the statistics of the micro-batch at
/// hand (of this rank alone) and moves the running ones, unbiased variance, by `momentum`;
/// otherwise it normalises with the running ones and leaves them. Keeps its input and two numbers
/// per channel, so a backward does not mind forwards in between.
class BatchNorm : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, double momentum = 0.1, double eps = 1e-5);

  std::string_view class_name() const override { return "BatchNorm"; }

 protected:
  /// (x [N, channels, ...]) -> the same shape. Throws UserError for one value per channel in
  /// training: it has no variance.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  at::Tensor forward_training(const at::Tensor& x);
  at::Tensor forward_evaluation(const at::Tensor& x);

  Parameter* weight_;
  Parameter* bias_;
  ModuleBuffer* running_mean_;
  ModuleBuffer* running_var_;
  double momentum_;
  double eps_;
};

}  // namespace shardbench

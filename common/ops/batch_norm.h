#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// Batch normalisation (Ioffe and Szegedy 2015) of x [N, C, ...] over all but dimension 1. weight,
/// bias and the statistics are [C].

/// What training leaves behind: y like x, and per channel the batch's mean and 1 / standard
/// deviation.
struct BatchNormResult {
  at::Tensor y;
  at::Tensor mean;
  at::Tensor rstd;
};

/// Running statistics, changed in place by training: r <- (1 - momentum) r + momentum batch, with
/// the unbiased variance of the batch, as in PyTorch.
struct RunningStatistics {
  at::Tensor mean;
  at::Tensor variance;
};

/// y = (x - mean) * rstd * weight + bias with the statistics of this batch, which needs more than
/// one value per channel. Updates `running`.
BatchNormResult batch_norm_training(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias, const RunningStatistics& running,
                                    double momentum, double eps);
/// The same with the running statistics, which it leaves alone.
at::Tensor batch_norm_evaluation(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, const RunningStatistics& running,
                                 double eps);

/// Gradients of one batch norm; undefined where not asked for.
struct BatchNormGrads {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
};
struct BatchNormNeeds {
  bool x = true;
  bool weight = true;
  bool bias = true;
};

/// All gradients in one pass over x, which they share. The mean and rstd are those of the forward:
/// running statistics may have moved on since.
BatchNormGrads batch_norm_training_backward(const at::Tensor& grad, const at::Tensor& x,
                                            const at::Tensor& weight, const at::Tensor& mean,
                                            const at::Tensor& rstd, double eps,
                                            const BatchNormNeeds& needs);
/// `used`: the running statistics as they were in the forward, which counted as constants.
BatchNormGrads batch_norm_evaluation_backward(const at::Tensor& grad, const at::Tensor& x,
                                              const at::Tensor& weight,
                                              const RunningStatistics& used, double eps,
                                              const BatchNormNeeds& needs);

}  // namespace shardbench::ops

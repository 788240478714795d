#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "common/optim/owned.h"
#include "common/train/config.h"

namespace shardbench::optim {

/// Steps the pieces that this rank owns. Moments are flat fp32 memory, category `optimizer`.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One step over the pieces whose parameter is used (by index): unused ones stay bit-identical,
  /// weight decay included. Gradients are multiplied by `gradient_scale` on the fly. A step may be
  /// made in several calls, each piece in one of them.
  virtual void step(std::span<const OwnedPiece> pieces, const std::vector<char>& used,
                    float gradient_scale) = 0;
  void step(const Owned& owned, const std::vector<char>& used, float gradient_scale) {
    step(std::span<const OwnedPiece>(owned.pieces), used, gradient_scale);
  }
  /// Moments of a piece, on its parameter's device; nullptr if this optimizer keeps none.
  virtual const float* first_moment(const OwnedPiece& piece) const = 0;
  virtual const float* second_moment(const OwnedPiece& piece) const = 0;

  /// The rate that the next step uses, warm-up not included (see train::learning_rate).
  double lr() const { return config_.lr; }
  void set_lr(double lr) { config_.lr = lr; }

 protected:
  explicit Optimizer(const train::OptimizerConfig& config) : config_(config) {}
  train::OptimizerConfig config_;
};

/// AdamW (first step t = 1) or SGD with momentum, moments of `owned.state_extent` elements, zeroed.
/// They lie where its parameters do. `owned` is read only here and in step. Throws UserError for
/// settings out of range.
std::unique_ptr<Optimizer> make_optimizer(const train::OptimizerConfig& config, const Owned& owned);

}  // namespace shardbench::optim

#pragma once

#include <span>
#include <vector>

#include "common/optim/exact_sum.h"
#include "common/optim/owned.h"

namespace shardbench::optim {

/// Adds the squares of the owned gradients of parameters with `used[parameter index]` to `sum`:
/// row by row in double, rows exactly. The total over all ranks is therefore the same bits for
/// every way of sharding by rows or whole tensors.
void add_squares(std::span<const OwnedPiece> pieces, const std::vector<char>& used, ExactSum& sum);
inline void add_squares(const Owned& owned, const std::vector<char>& used, ExactSum& sum) {
  add_squares(std::span<const OwnedPiece>(owned.pieces), used, sum);
}

/// Whether all owned gradients of parameters with `used[parameter index]` are finite numbers.
bool all_finite(const Owned& owned, const std::vector<char>& used);

/// Factor for gradients whose norm is `norm`: min(1, max_norm / (norm + 1e-6)), 1 if max_norm is 0.
float clip_coefficient(double norm, double max_norm);

/// The same for gradients that a loss scale has made larger; `norm` is of what they are without it.
float gradient_scale(double norm, double max_norm, double loss_scale);

}  // namespace shardbench::optim

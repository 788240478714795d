#include "common/optim/norm.h"

#include <algorithm>

#include "common/modules/parameter.h"
#include "common/optim/device_norm.h"
#include "common/optim/kernels.h"

namespace shardbench::optim {

void add_squares(std::span<const OwnedPiece> pieces, const std::vector<char>& used, ExactSum& sum) {
  if (!lie_on_host(pieces)) return add_squares_on_device(pieces, used, sum);
  for (const OwnedPiece& piece : pieces) {
    if (!used[static_cast<std::size_t>(piece.parameter->index())]) continue;
    const std::int64_t row = piece.parameter->row_elements();
    for (std::int64_t i = 0; i < piece.count; i += row) {
      sum.add(sum_of_squares(piece.gradient + i, row));
    }
  }
}

bool all_finite(const Owned& owned, const std::vector<char>& used) {
  if (!lie_on_host(owned.pieces)) return all_finite_on_device(owned, used);
  return std::all_of(owned.pieces.begin(), owned.pieces.end(), [&](const OwnedPiece& piece) {
    return !used[static_cast<std::size_t>(piece.parameter->index())] ||
           all_finite(piece.gradient, piece.count);
  });
}

float clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0f;
  return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

float gradient_scale(double norm, double max_norm, double loss_scale) {
  const float clip = clip_coefficient(norm, max_norm);
  return loss_scale == 1 ? clip : static_cast<float>(static_cast<double>(clip) / loss_scale);
}

}  // namespace shardbench::optim

#include "common/optim/norm.h"

#include <algorithm>

#include "common/modules/parameter.h"
#include "common/optim/kernels.h"

namespace shardbench::optim {

void add_squares(const Owned& owned, const std::vector<char>& used, ExactSum& sum) {
  for (const OwnedPiece& piece : owned.pieces) {
    if (!used[static_cast<std::size_t>(piece.parameter->index())]) continue;
    const std::int64_t row = piece.parameter->row_elements();
    for (std::int64_t i = 0; i < piece.count; i += row) {
      sum.add(sum_of_squares(piece.gradient + i, row));
    }
  }
}

float clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0f;
  return static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
}

}  // namespace shardbench::optim

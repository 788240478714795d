#pragma once

#include <span>
#include <vector>

#include "common/optim/exact_sum.h"
#include "common/optim/owned.h"

namespace shardbench::optim {

/// Whether the host's kernels serve these pieces (see ops::on_host).
bool lie_on_host(std::span<const OwnedPiece> pieces);

/// What norm.h computes, for gradients on a device. The host waits once, for the result.
void add_squares_on_device(std::span<const OwnedPiece> pieces, const std::vector<char>& used,
                           ExactSum& sum);
bool all_finite_on_device(const Owned& owned, const std::vector<char>& used);

}  // namespace shardbench::optim

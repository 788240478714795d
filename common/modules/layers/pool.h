#pragma once

#include <ATen/core/Tensor.h>

#include "common/ops/pool.h"

namespace shardbench::functional {

/// Pooling over the spatial dimensions of x [N, C, spatial...], joined to autograd. None keeps its
/// input.

/// Keeps where the maxima were: one int64 per output element.
at::Tensor max_pool(const at::Tensor& x, const ops::PoolWindow& window);

/// Means of windows; padding counts as zeros. Keeps nothing.
at::Tensor avg_pool(const at::Tensor& x, const ops::PoolWindow& window);

/// Mean over all spatial dimensions, [N, C]. Keeps nothing.
at::Tensor global_avg_pool(const at::Tensor& x);

}  // namespace shardbench::functional

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace shardbench::ops {

/// A pooling window: one number per spatial dimension (one to three of them). Padding is at most
/// half the kernel.
struct PoolWindow {
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;

  /// Windows that touch and do not overlap, without padding.
  static PoolWindow tiles(std::vector<std::int64_t> kernel) {
    std::vector<std::int64_t> zeros(kernel.size(), 0);
    return {kernel, kernel, std::move(zeros)};
  }
};

/// x [N, C, spatial...] to [N, C, spatial'...] with
/// spatial' = floor((spatial + 2 padding - kernel) / stride) + 1.
struct MaxPoolResult {
  at::Tensor y;
  at::Tensor indices;  ///< int64, like y: where in the spatial dimensions of x the maximum is
};
MaxPoolResult max_pool(const at::Tensor& x, const PoolWindow& window);
/// dx of sizes `x_sizes`: each element of grad goes to where its maximum was.
at::Tensor max_pool_backward(const at::Tensor& grad, const at::Tensor& indices,
                             at::IntArrayRef x_sizes, const PoolWindow& window);

/// Means of windows; padding counts as zeros.
at::Tensor avg_pool(const at::Tensor& x, const PoolWindow& window);
at::Tensor avg_pool_backward(const at::Tensor& grad, at::IntArrayRef x_sizes,
                             const PoolWindow& window);

/// Mean over all spatial dimensions: x [N, C, spatial...] to [N, C].
at::Tensor global_avg_pool(const at::Tensor& x);
/// dx of sizes `x_sizes`, without memory of that size: a view of one value per channel.
at::Tensor global_avg_pool_backward(const at::Tensor& grad, at::IntArrayRef x_sizes);

}  // namespace shardbench::ops

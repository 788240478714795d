#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace shardbench::ops {

/// x as [product of the leading dimensions, last dimension]; copies only if x is not contiguous.
/// Sizes are written out rather than inferred, so that empty tensors work.
inline at::Tensor as_rows(const at::Tensor& x) {
  const std::int64_t width = x.size(-1);
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.size(d);
  return x.reshape({rows, width});
}

/// The sizes of x with the last one replaced.
inline std::vector<std::int64_t> with_last_dimension(const at::Tensor& x, std::int64_t width) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = width;
  return sizes;
}

}  // namespace shardbench::ops

#include "common/ops/pool.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "common/core/error.h"
#include "common/ops/dtype.h"

namespace shardbench::ops {

namespace {

void check(std::int64_t dims, const PoolWindow& window) {
  const std::size_t spatial = window.kernel.size();
  SHARDBENCH_CHECK(spatial >= 1 && spatial <= 3 && window.stride.size() == spatial &&
                       window.padding.size() == spatial,
                   "a pooling window of {} kernel sizes, {} strides, {} paddings", spatial,
                   window.stride.size(), window.padding.size());
  SHARDBENCH_CHECK_EQ(static_cast<std::size_t>(dims), spatial + 2);
}

std::vector<std::int64_t> with_front(std::int64_t first, const std::vector<std::int64_t>& rest) {
  std::vector<std::int64_t> all = {first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

/// ATen's kernels know planes and volumes; a line is a plane of height one.
bool is_line(const PoolWindow& window) { return window.kernel.size() == 1; }
PoolWindow as_plane(const PoolWindow& line) {
  return {with_front(1, line.kernel), with_front(1, line.stride), with_front(0, line.padding)};
}
std::vector<std::int64_t> as_plane(at::IntArrayRef line) { return {line[0], line[1], 1, line[2]}; }

/// A stand-in of these sizes for kernels that read nothing but the sizes; one element of memory.
at::Tensor of_sizes(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::zeros({1}, like.options()).expand(sizes);
}

constexpr bool kCeil = false;
constexpr bool kCountPadding = true;

}  // namespace

MaxPoolResult max_pool(const at::Tensor& x, const PoolWindow& window) {
  check(x.dim(), window);
  if (is_line(window)) {
    const MaxPoolResult plane = max_pool(x.unsqueeze(2), as_plane(window));
    return {plane.y.squeeze(2), plane.indices.squeeze(2)};
  }
  const std::vector<std::int64_t> ones(window.kernel.size(), 1);
  auto [y, indices] = ones.size() == 2
                          ? at::max_pool2d_with_indices(x, window.kernel, window.stride,
                                                        window.padding, ones, kCeil)
                          : at::max_pool3d_with_indices(x, window.kernel, window.stride,
                                                        window.padding, ones, kCeil);
  return {std::move(y), std::move(indices)};
}

at::Tensor max_pool_backward(const at::Tensor& grad, const at::Tensor& indices,
                             at::IntArrayRef x_sizes, const PoolWindow& window) {
  check(grad.dim(), window);
  if (is_line(window)) {
    return max_pool_backward(grad.unsqueeze(2), indices.unsqueeze(2), as_plane(x_sizes),
                             as_plane(window))
        .squeeze(2);
  }
  const std::vector<std::int64_t> ones(window.kernel.size(), 1);
  const at::Tensor x = of_sizes(x_sizes, grad);
  if (ones.size() == 2) {
    return at::max_pool2d_with_indices_backward(grad.contiguous(), x, window.kernel, window.stride,
                                                window.padding, ones, kCeil, indices);
  }
  return at::max_pool3d_with_indices_backward(grad.contiguous(), x, window.kernel, window.stride,
                                              window.padding, ones, kCeil, indices);
}

at::Tensor avg_pool(const at::Tensor& x, const PoolWindow& window) {
  check(x.dim(), window);
  if (is_line(window)) return avg_pool(x.unsqueeze(2), as_plane(window)).squeeze(2);
  if (window.kernel.size() == 2) {
    return at::avg_pool2d(x, window.kernel, window.stride, window.padding, kCeil, kCountPadding);
  }
  // LibTorch averages volumes in fp32 and fp64 only.
  return at::avg_pool3d(in_compute_type(x, x), window.kernel, window.stride, window.padding, kCeil,
                        kCountPadding)
      .to(x.scalar_type());
}

at::Tensor avg_pool_backward(const at::Tensor& grad, at::IntArrayRef x_sizes,
                             const PoolWindow& window) {
  check(grad.dim(), window);
  if (is_line(window)) {
    return avg_pool_backward(grad.unsqueeze(2), as_plane(x_sizes), as_plane(window)).squeeze(2);
  }
  const at::Tensor x = of_sizes(x_sizes, grad);
  if (window.kernel.size() == 2) {
    return at::avg_pool2d_backward(grad.contiguous(), x, window.kernel, window.stride,
                                   window.padding, kCeil, kCountPadding, std::nullopt);
  }
  return at::avg_pool3d_backward(in_compute_type(grad.contiguous(), grad), in_compute_type(x, x),
                                 window.kernel, window.stride, window.padding, kCeil, kCountPadding,
                                 std::nullopt)
      .to(grad.scalar_type());
}

at::Tensor global_avg_pool(const at::Tensor& x) { return x.flatten(2).mean(2); }

at::Tensor global_avg_pool_backward(const at::Tensor& grad, at::IntArrayRef x_sizes) {
  std::int64_t count = 1;
  std::vector<std::int64_t> one_each = {x_sizes[0], x_sizes[1]};
  for (std::size_t d = 2; d < x_sizes.size(); ++d) {
    count *= x_sizes[d];
    one_each.push_back(1);
  }
  return grad.div(static_cast<double>(count)).reshape(one_each).expand(x_sizes);
}

}  // namespace shardbench::ops

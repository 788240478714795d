#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace shardbench::testing {

/// Convolution in plain ATen calls, without any of ATen's: one matrix product per position in the
/// kernel, over the strided slice of the padded input that this position meets.
inline at::Tensor conv_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          std::int64_t stride, std::int64_t padding) {
  const std::int64_t dims = x.dim() - 2;
  const std::vector<std::int64_t> pad(static_cast<std::size_t>(2 * dims), padding);
  const at::Tensor padded = at::constant_pad_nd(x, pad);
  std::vector<std::int64_t> sizes = {x.size(0), weight.size(0)};
  std::int64_t positions = 1;
  for (std::int64_t d = 2; d < x.dim(); ++d) {
    sizes.push_back((padded.size(d) - weight.size(d)) / stride + 1);
    positions *= weight.size(d);
  }
  const at::Tensor by_position = weight.flatten(2);
  at::Tensor y = at::zeros({sizes[0], sizes[1], 1}, x.options());
  for (std::int64_t position = 0; position < positions; ++position) {
    at::Tensor met = padded;
    std::int64_t rest = position;
    for (std::int64_t d = x.dim() - 1; d >= 2; --d) {
      const std::int64_t first = rest % weight.size(d);
      const std::int64_t count = sizes[static_cast<std::size_t>(d)];
      met = met.slice(d, first, first + (count - 1) * stride + 1, stride);
      rest /= weight.size(d);
    }
    y = y + at::matmul(by_position.select(2, position), met.flatten(2));
  }
  if (bias.defined()) y = y + bias.view({-1, 1});
  return y.view(sizes);
}

/// [C] as a tensor that broadcasts over x [N, C, ...].
inline at::Tensor per_channel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

/// All dimensions but the channels'.
inline std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

/// Batch norm with the statistics of the batch.
inline at::Tensor batch_norm_of(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, double eps = 1e-5) {
  const std::vector<std::int64_t> dims = all_but_channels(x);
  const at::Tensor centred = x - x.mean(dims, true);
  return centred / (centred.square().mean(dims, true) + eps).sqrt() * per_channel(weight, x) +
         per_channel(bias, x);
}

}  // namespace shardbench::testing

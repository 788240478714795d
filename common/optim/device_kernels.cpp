#include "common/optim/device_kernels.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace shardbench::optim::on_device {

namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 22;  ///< elements

/// Calls f(begin, count) for the blocks of `count` elements.
template <typename F>
void for_blocks(std::int64_t count, std::int64_t block, F f) {
  for (std::int64_t begin = 0; begin < count; begin += block) {
    f(begin, std::min(block, count - begin));
  }
}

}  // namespace

// Never add(x, y, alpha): that may be contracted into one rounding.

void adamw(const AdamWStep& s, const at::Tensor& gradient, const at::Tensor& value,
           const at::Tensor& first_moment, const at::Tensor& second_moment) {
  for_blocks(gradient.numel(), kBlock, [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor g = gradient.narrow(0, begin, count).mul(s.gradient_scale);
    at::Tensor m = first_moment.narrow(0, begin, count);
    at::Tensor v = second_moment.narrow(0, begin, count);
    at::Tensor x = value.narrow(0, begin, count);
    at::Tensor scratch = g.sub(m).mul_(1.0f - s.beta1);
    m.add_(scratch);
    at::mul_out(scratch, g, g).mul_(1.0f - s.beta2);
    v.mul_(s.beta2).add_(scratch);
    at::sqrt_out(scratch, v).mul_(s.inverse_root_bias2).add_(s.eps);
    at::div_out(scratch, m, scratch).mul_(s.step_size);
    x.mul_(1.0f - s.lr * s.weight_decay).sub_(scratch);
  });
}

void sgd(const SgdStep& s, const at::Tensor& gradient, const at::Tensor& value,
         const at::Tensor& momentum_buffer) {
  for_blocks(gradient.numel(), kBlock, [&](std::int64_t begin, std::int64_t count) {
    at::Tensor g = gradient.narrow(0, begin, count).mul(s.gradient_scale);
    at::Tensor x = value.narrow(0, begin, count);
    at::Tensor b = momentum_buffer.narrow(0, begin, count);
    g.add_(x.mul(s.weight_decay));
    b.mul_(s.momentum).add_(g);
    x.sub_(b.mul(s.lr));
  });
}

at::Tensor all_finite(const at::Tensor& values) { return values.isfinite().all(); }

at::Tensor sums_of_squares(const at::Tensor& rows) {
  const std::int64_t count = rows.size(0), width = rows.size(1);
  const at::Tensor sums = at::empty({count}, rows.options().dtype(at::kDouble));
  const std::int64_t together =
      std::max<std::int64_t>(1, kBlock / std::max<std::int64_t>(1, width));
  for_blocks(count, together, [&](std::int64_t begin, std::int64_t n) {
    at::Tensor left = rows.narrow(0, begin, n).to(at::kDouble).square_();
    while (left.size(1) > 1) {
      const std::int64_t half = (left.size(1) + 1) / 2;
      left.narrow(1, 0, left.size(1) - half).add_(left.narrow(1, half, left.size(1) - half));
      left = left.narrow(1, 0, half);
    }
    at::Tensor part = sums.narrow(0, begin, n);
    if (width == 0) {
      part.zero_();
    } else {
      part.copy_(left.squeeze(1));
    }
  });
  return sums;
}

}  // namespace shardbench::optim::on_device

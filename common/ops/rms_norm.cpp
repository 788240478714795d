#include "common/ops/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <array>
#include <cmath>
#include <vector>

#include "common/core/error.h"
#include "common/ops/pointwise.h"
#include "common/ops/portable.h"
#include "common/ops/shapes.h"
#include "common/ops/store.h"

namespace shardbench::ops {

namespace {

/// Sum of f(0) to f(count - 1), in lanes that the compiler can keep in vector registers.
template <typename T, typename F>
T lane_sum(std::int64_t count, F f) {
  constexpr std::int64_t kLanes = 16;
  std::array<T, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<std::size_t>(lane)] += f(i + lane);
    }
  }
  T sum = 0;
  for (; i < count; ++i) sum += f(i);
  for (T lane : lanes) sum += lane;
  return sum;
}

/// What statistics of rows are kept in.
at::TensorOptions statistics_of(const at::Tensor& x) {
  return is_half_width(x) ? x.options().dtype(at::kFloat) : x.options();
}

void check_width(const at::Tensor& x, const at::Tensor& weight) {
  SHARDBENCH_CHECK(x.dim() >= 1 && weight.dim() == 1 && x.size(-1) == weight.size(0),
                   "RMS norm of width {} with {} weights", x.dim() < 1 ? 0 : x.size(-1),
                   weight.numel());
}

}  // namespace

RmsNormResult rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check_width(x, weight);
  if (!on_host(x)) return portable::rms_norm(x, weight, eps);
  const at::Tensor in = as_rows(x).contiguous();
  const std::int64_t rows = in.size(0), width = in.size(1);
  RmsNormResult result{at::empty(x.sizes(), in.options()), at::empty({rows}, statistics_of(in))};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, in.scalar_type(), "rms_norm", [&] {
    using sum_t = at::opmath_type<scalar_t>;
    const scalar_t* w = weight.const_data_ptr<scalar_t>();
    const scalar_t* from = in.const_data_ptr<scalar_t>();
    scalar_t* to = result.y.mutable_data_ptr<scalar_t>();
    sum_t* rrms = result.rrms.mutable_data_ptr<sum_t>();
    for_rows(rows, width, [&](std::int64_t row) {
      const scalar_t* __restrict__ xs = from + row * width;
      scalar_t* __restrict__ ys = to + row * width;
      const auto x_at = [&](std::int64_t i) { return static_cast<sum_t>(xs[i]); };
      const sum_t squares =
          lane_sum<sum_t>(width, [&](std::int64_t i) { return x_at(i) * x_at(i); });
      const sum_t mean = squares / static_cast<sum_t>(width);
      const sum_t scale = 1 / std::sqrt(mean + static_cast<sum_t>(eps));
      rrms[row] = scale;
      for (std::int64_t i = 0; i < width; ++i) {
        ys[i] = static_cast<scalar_t>(x_at(i) * scale * static_cast<sum_t>(w[i]));
      }
    });
  });
  return result;
}

void rms_norm_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                          const at::Tensor& target, bool accumulate) {
  check_width(x, target);
  if (!on_host(x)) return portable::rms_norm_weight_grad(grad, x, rrms, target, accumulate);
  const at::Tensor gs = as_rows(grad).contiguous(), xs = as_rows(x).contiguous();
  const std::int64_t rows = xs.size(0), width = xs.size(1);
  const at::Tensor result = at::empty({width}, statistics_of(xs));
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, xs.scalar_type(), "rms_norm_weight_grad", [&] {
        using sum_t = at::opmath_type<scalar_t>;
        const scalar_t* g = gs.const_data_ptr<scalar_t>();
        const scalar_t* in = xs.const_data_ptr<scalar_t>();
        const sum_t* scale = rrms.const_data_ptr<sum_t>();
        sum_t* to = result.mutable_data_ptr<sum_t>();
        std::vector<double> sums(static_cast<std::size_t>(width), 0.0);
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < width; ++i) {
            const std::int64_t at = row * width + i;
            sums[static_cast<std::size_t>(i)] += static_cast<double>(
                static_cast<sum_t>(g[at]) * static_cast<sum_t>(in[at]) * scale[row]);
          }
        }
        for (std::int64_t i = 0; i < width; ++i) {
          to[i] = static_cast<sum_t>(sums[static_cast<std::size_t>(i)]);
        }
      });
  store(target, result, accumulate);
}

at::Tensor rms_norm_input_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                               const at::Tensor& weight) {
  check_width(x, weight);
  if (!on_host(x)) return portable::rms_norm_input_grad(grad, x, rrms, weight);
  const at::Tensor gs = as_rows(grad).contiguous(), in = as_rows(x).contiguous();
  const std::int64_t rows = in.size(0), width = in.size(1);
  at::Tensor result = at::empty(x.sizes(), in.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, in.scalar_type(), "rms_norm_input_grad", [&] {
        using sum_t = at::opmath_type<scalar_t>;
        const scalar_t* w = weight.const_data_ptr<scalar_t>();
        const scalar_t* from = gs.const_data_ptr<scalar_t>();
        const scalar_t* inputs = in.const_data_ptr<scalar_t>();
        const sum_t* scales = rrms.const_data_ptr<sum_t>();
        scalar_t* to = result.mutable_data_ptr<scalar_t>();
        for_rows(rows, width, [&](std::int64_t row) {
          const scalar_t* __restrict__ g = from + row * width;
          const scalar_t* __restrict__ xs = inputs + row * width;
          scalar_t* __restrict__ dx = to + row * width;
          const auto gw = [&](std::int64_t i) {
            return static_cast<sum_t>(g[i]) * static_cast<sum_t>(w[i]);
          };
          const auto x_at = [&](std::int64_t i) { return static_cast<sum_t>(xs[i]); };
          const sum_t scale = scales[row];
          const sum_t along =
              lane_sum<sum_t>(width, [&](std::int64_t i) { return gw(i) * x_at(i); });
          const sum_t pull = along * scale * scale / static_cast<sum_t>(width);
          for (std::int64_t i = 0; i < width; ++i) {
            dx[i] = static_cast<scalar_t>(scale * (gw(i) - x_at(i) * pull));
          }
        });
      });
  return result;
}

}  // namespace shardbench::ops

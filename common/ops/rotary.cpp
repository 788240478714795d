#include "common/ops/rotary.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"
#include "common/ops/dtype.h"
#include "common/ops/on_host.h"
#include "common/ops/portable.h"

namespace shardbench::ops {

namespace {

constexpr std::int64_t kGrain = 8192;  ///< elements that are worth a thread

/// Turns the pairs (a[i], b[i]) of one head at one position; `direction` is 1, or -1 to turn back.
template <typename T, typename Angle>
void turn(T* __restrict__ a, T* __restrict__ b, const Angle* __restrict__ cosines,
          const Angle* __restrict__ sines, std::int64_t pairs, Angle direction) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto first = static_cast<Angle>(a[i]), second = static_cast<Angle>(b[i]);
    const Angle sine = direction * sines[i];
    a[i] = static_cast<T>(first * cosines[i] - second * sine);
    b[i] = static_cast<T>(first * sine + second * cosines[i]);
  }
}

/// All of contiguous `x` in place.
void turn_all(const at::Tensor& x, const at::Tensor& table, double direction) {
  const std::int64_t size = table.size(1), half = size / 2;
  SHARDBENCH_CHECK(x.dim() == 3 && size > 0 && x.size(2) % size == 0,
                   "rotary embedding of heads of {} over {} dimensions", size, x.dim());
  SHARDBENCH_CHECK_LE(x.size(1), table.size(0));
  SHARDBENCH_CHECK(table.scalar_type() == (is_half_width(x) ? at::kFloat : x.scalar_type()),
                   "a rotary table of another dtype");
  if (!on_host(x)) return portable::rotary(x, table, direction);
  const std::int64_t length = x.size(1), width = x.size(2);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rotary", [&] {
    using angle_t = at::opmath_type<scalar_t>;
    const angle_t* angles = table.const_data_ptr<angle_t>();
    scalar_t* values = x.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, x.size(0) * length, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t token = begin; token < end; ++token) {
        const angle_t* cosines = angles + token % length * size;
        scalar_t* head = values + token * width;
        for (const scalar_t* last = head + width; head != last; head += size) {
          turn(head, head + half, cosines, cosines + half, half, static_cast<angle_t>(direction));
        }
      }
    });
  });
}

}  // namespace

at::Tensor rotary_table(std::int64_t length, std::int64_t size, double theta,
                        at::ScalarType dtype) {
  SHARDBENCH_CHECK(size > 0 && size % 2 == 0, "rotary embedding of {} elements", size);
  at::Tensor table = at::empty({length, size}, at::TensorOptions().dtype(dtype));
  const std::int64_t half = size / 2;
  AT_DISPATCH_FLOATING_TYPES(dtype, "rotary_table", [&] {
    scalar_t* out = table.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
      for (std::int64_t t = 0; t < length; ++t) {
        const double angle = static_cast<double>(t) * frequency;
        out[t * size + i] = static_cast<scalar_t>(std::cos(angle));
        out[t * size + half + i] = static_cast<scalar_t>(std::sin(angle));
      }
    }
  });
  return table;
}

at::Tensor rotary(const at::Tensor& x, const at::Tensor& table) {
  SHARDBENCH_CHECK(x.is_contiguous(), "rotary embedding works in place on contiguous memory");
  at::Tensor turned = x.detach();
  turn_all(turned, table, 1);
  return turned;
}

at::Tensor rotary_backward(const at::Tensor& grad, const at::Tensor& table) {
  at::Tensor result = grad.clone(at::MemoryFormat::Contiguous);
  turn_all(result, table, -1);
  return result;
}

}  // namespace shardbench::ops

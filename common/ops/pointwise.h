#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "common/ops/dtype.h"
#include "common/ops/kernels.h"
#include "common/ops/on_host.h"

namespace shardbench::ops {

/// Whether the loops of kernels.h take `tensor`.
inline bool has_kernels(const at::Tensor& tensor) {
  return on_host(tensor) && at::isFloatingType(tensor.scalar_type());
}

/// Where element `index` of a contiguous tensor lies.
inline const void* element_of(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<const std::byte*>(tensor.const_data_ptr()) +
         static_cast<std::size_t>(index) * tensor.element_size();
}
inline void* element_to(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr()) +
         static_cast<std::size_t>(index) * tensor.element_size();
}

constexpr std::int64_t kGrain = 16384;  ///< elements that are worth a thread

/// Calls f(first, count) for parts of `elements` on the threads there are.
template <typename F>
void for_parts(std::int64_t elements, F f) {
  at::parallel_for(0, elements, kGrain,
                   [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin); });
}

/// kernel(dtype, count, inputs..., result) over all elements: a new tensor like the first input.
/// Inputs have one shape and one dtype.
template <typename Kernel, typename... Inputs>
at::Tensor pointwise(Kernel kernel, const at::Tensor& first_input, const Inputs&... others) {
  const std::array<at::Tensor, 1 + sizeof...(others)> inputs = {first_input.contiguous(),
                                                                others.contiguous()...};
  at::Tensor result = at::empty(inputs[0].sizes(), inputs[0].options());
  for_parts(result.numel(), [&](std::int64_t first, std::int64_t count) {
    std::apply(
        [&](const auto&... input) {
          kernel(dtype_of(result), count, element_of(input, first)..., element_to(result, first));
        },
        inputs);
  });
  return result;
}

/// Calls f(row) for `rows` of `width` elements each on the threads there are.
template <typename F>
void for_rows(std::int64_t rows, std::int64_t width, F f) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width));
  at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace shardbench::ops

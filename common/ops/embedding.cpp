#include "common/ops/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <numeric>

#include "common/core/error.h"
#include "common/ops/on_host.h"
#include "common/ops/portable.h"
#include "common/ops/shapes.h"

namespace shardbench::ops {

namespace {

/// Adds the rows of a gradient to the rows of the target that the indices name, in the order of
/// positions.
template <typename To, typename From>
void add_rows(const From* from, const std::int64_t* index, std::int64_t count, std::int64_t width,
              To* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    To* __restrict__ sum = to + index[i] * width;
    const From* __restrict__ add = from + i * width;
    for (std::int64_t j = 0; j < width; ++j) sum[j] += static_cast<To>(add[j]);
  }
}

/// The same for a target too narrow to add up in: a row's sum is made in fp32 and rounded once.
template <typename To, typename From>
void add_rows_wide(const From* from, const std::int64_t* index, std::int64_t count,
                   std::int64_t width, To* to) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return index[a] < index[b]; });
  std::vector<float> sum(static_cast<std::size_t>(width));
  for (std::size_t first = 0; first < order.size();) {
    const std::int64_t row = index[order[first]];
    To* target = to + row * width;
    for (std::int64_t j = 0; j < width; ++j) sum[j] = static_cast<float>(target[j]);
    for (; first < order.size() && index[order[first]] == row; ++first) {
      const From* add = from + order[first] * width;
      for (std::int64_t j = 0; j < width; ++j) sum[j] += static_cast<float>(add[j]);
    }
    for (std::int64_t j = 0; j < width; ++j) target[j] = static_cast<To>(sum[j]);
  }
}

template <typename From>
void add_to_target(const at::Tensor& rows, const std::int64_t* index, const at::Tensor& target) {
  const From* from = rows.const_data_ptr<From>();
  const std::int64_t count = rows.size(0), width = rows.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, target.scalar_type(), "embedding_weight_grad", [&] {
        auto* to = target.mutable_data_ptr<scalar_t>();
        if constexpr (std::is_same_v<scalar_t, at::opmath_type<scalar_t>>) {
          add_rows(from, index, count, width, to);
        } else {
          add_rows_wide(from, index, count, width, to);
        }
      });
}

}  // namespace

namespace {

void check_indices(const at::Tensor& flat, std::int64_t rows) {
  const std::int64_t* index = flat.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    SHARDBENCH_CHECK(index[i] >= 0 && index[i] < rows,
                     "index {} at position {} is outside an embedding of {} rows", index[i], i,
                     rows);
  }
}

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices) {
  const at::Tensor flat = indices.contiguous().view({indices.numel()});
  if (on_host(indices)) check_indices(flat, weight.size(0));
  std::vector<std::int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return at::index_select(weight, 0, flat).view(sizes);
}

void embedding_weight_grad(const at::Tensor& grad, const at::Tensor& indices,
                           const at::Tensor& target, bool accumulate) {
  if (!accumulate) at::Tensor(target).zero_();
  const at::Tensor rows = as_rows(grad).contiguous();
  const at::Tensor flat = indices.contiguous();
  SHARDBENCH_CHECK_EQ(rows.size(0), flat.numel());
  SHARDBENCH_CHECK(target.is_contiguous(), "an embedding's gradient target is not contiguous");
  if (!on_host(target)) return portable::add_rows(rows, flat.view({flat.numel()}), target);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, rows.scalar_type(), "embedding_weight_grad",
      [&] { add_to_target<scalar_t>(rows, flat.const_data_ptr<std::int64_t>(), target); });
}

}  // namespace shardbench::ops

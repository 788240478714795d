#include "common/ops/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "common/core/error.h"
#include "common/ops/shapes.h"

namespace shardbench::ops {

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices) {
  const at::Tensor flat = indices.contiguous().view({indices.numel()});
  const std::int64_t* index = flat.const_data_ptr<std::int64_t>();
  const std::int64_t rows = weight.size(0);
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    SHARDBENCH_CHECK(index[i] >= 0 && index[i] < rows,
                     "index {} at position {} is outside an embedding of {} rows", index[i], i,
                     rows);
  }
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
  const std::int64_t width = target.size(1);
  const std::int64_t* index = flat.const_data_ptr<std::int64_t>();
  AT_DISPATCH_FLOATING_TYPES(target.scalar_type(), "embedding_weight_grad", [&] {
    const scalar_t* from = rows.const_data_ptr<scalar_t>();
    scalar_t* to = target.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      scalar_t* __restrict__ sum = to + index[i] * width;
      const scalar_t* __restrict__ add = from + i * width;
      for (std::int64_t j = 0; j < width; ++j) sum[j] += add[j];
    }
  });
}

}  // namespace shardbench::ops

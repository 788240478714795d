#include "common/ops/cross_entropy.h"

#include <ATen/ATen.h>

#include <numeric>
#include <vector>

#include "common/core/error.h"
#include "common/ops/pointwise.h"
#include "common/ops/portable.h"
#include "common/ops/shapes.h"

namespace shardbench::ops {

namespace {

/// Targets as one contiguous row, checked against the logits' rows.
at::Tensor flat_targets(const at::Tensor& rows, const at::Tensor& targets) {
  SHARDBENCH_CHECK_EQ(targets.numel(), rows.size(0));
  SHARDBENCH_CHECK(rows.numel() > 0, "cross entropy of no rows or no classes");
  return targets.contiguous().view({targets.numel()});
}

}  // namespace

CrossEntropyResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  SHARDBENCH_CHECK(logits.is_contiguous(), "cross entropy works in place on contiguous logits");
  const at::Tensor rows = as_rows(logits.detach());
  const at::Tensor flat = flat_targets(rows, targets);
  if (!has_kernels(rows)) return portable::cross_entropy(rows, flat);
  const std::int64_t count = rows.size(0), classes = rows.size(1);
  const std::int64_t* target = flat.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    SHARDBENCH_CHECK(target[i] >= 0 && target[i] < classes,
                     "target {} at position {} is outside {} classes", target[i], i, classes);
  }
  const DType dtype = dtype_of(rows);
  CrossEntropyResult result;
  result.logsumexp = at::empty({count}, rows.options().dtype(at::kDouble));
  double* sums = result.logsumexp.mutable_data_ptr<double>();
  std::vector<double> losses(static_cast<std::size_t>(count));
  for_rows(count, classes, [&](std::int64_t i) {
    const void* row = element_of(rows, i * classes);
    sums[i] = kernels::sum_of_exponentials(dtype, classes, row, 1.0).logarithm();
    losses[static_cast<std::size_t>(i)] = sums[i] - kernels::value(dtype, row, target[i]);
  });
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  result.loss = at::scalar_tensor(loss / static_cast<double>(count),
                                  rows.options().dtype(compute_type(rows)));
  return result;
}

at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& kept,
                                  const at::Tensor& targets, const at::Tensor& logsumexp) {
  const at::Tensor rows = as_rows(kept);
  const at::Tensor flat = flat_targets(rows, targets);
  if (!has_kernels(rows)) {
    portable::cross_entropy_backward(grad, rows, flat, logsumexp);
    return kept;
  }
  SHARDBENCH_CHECK(logsumexp.defined(), "the backward of cross entropy lacks its forward's sums");
  const std::int64_t count = rows.size(0), classes = rows.size(1);
  const std::int64_t* target = flat.const_data_ptr<std::int64_t>();
  const double* sums = logsumexp.const_data_ptr<double>();
  const double scale = grad.item<double>() / static_cast<double>(count);
  for_rows(count, classes, [&](std::int64_t i) {
    kernels::cross_entropy_backward(dtype_of(rows), classes, element_to(rows, i * classes),
                                    target[i], sums[i], scale);
  });
  return kept;
}

}  // namespace shardbench::ops

#include "common/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>

#include "common/core/error.h"
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

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  SHARDBENCH_CHECK(logits.is_contiguous(), "cross entropy works in place on contiguous logits");
  at::Tensor rows = as_rows(logits.detach());
  const at::Tensor flat = flat_targets(rows, targets);
  const std::int64_t classes = rows.size(1);
  const std::int64_t* target = flat.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    SHARDBENCH_CHECK(target[i] >= 0 && target[i] < classes,
                     "target {} at position {} is outside {} classes", target[i], i, classes);
  }
  // The kernel reads a row before it writes it, so input and output may be the same memory.
  at::_log_softmax_out(rows, rows, 1, /*half_to_float=*/false);
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "cross_entropy", [&] {
    const scalar_t* values = rows.const_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      sum -= static_cast<double>(values[i * classes + target[i]]);
    }
  });
  return at::scalar_tensor(sum / static_cast<double>(flat.numel()), logits.options());
}

at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& log_probabilities,
                                  const at::Tensor& targets) {
  const at::Tensor rows = as_rows(log_probabilities);
  const at::Tensor flat = flat_targets(rows, targets);
  const std::int64_t classes = rows.size(1);
  const std::int64_t* target = flat.const_data_ptr<std::int64_t>();
  const double scale = grad.item<double>() / static_cast<double>(flat.numel());
  // Two passes over blocks that stay in the cache.
  constexpr std::int64_t kBlockElements = 65536;
  const std::int64_t block = std::max<std::int64_t>(1, kBlockElements / classes);
  for (std::int64_t first = 0; first < rows.size(0); first += block) {
    rows.narrow(0, first, std::min(block, rows.size(0) - first)).exp_().mul_(scale);
  }
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "cross_entropy_backward", [&] {
    scalar_t* values = rows.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      values[i * classes + target[i]] -= static_cast<scalar_t>(scale);
    }
  });
  return log_probabilities;
}

}  // namespace shardbench::ops

#include "common/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/ops/dtype.h"
#include "common/ops/on_host.h"
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

/// Calls f(first row, rows) for blocks of rows that stay in the cache.
template <typename F>
void for_blocks(const at::Tensor& rows, F f) {
  constexpr std::int64_t kBlockElements = 65536;
  const std::int64_t block = std::max<std::int64_t>(1, kBlockElements / rows.size(1));
  for (std::int64_t first = 0; first < rows.size(0); first += block) {
    f(first, std::min(block, rows.size(0) - first));
  }
}

/// bf16 and fp16 cannot hold log-probabilities closely enough: the logits stay as they are, and
/// what is kept beside them, in fp32, is one number per row.
CrossEntropyResult narrow_cross_entropy(const at::Tensor& rows, const std::int64_t* target) {
  CrossEntropyResult result;
  result.logsumexp = at::empty({rows.size(0)}, rows.options().dtype(at::kFloat));
  float* sums = result.logsumexp.mutable_data_ptr<float>();
  double sum = 0;
  for_blocks(rows, [&](std::int64_t first, std::int64_t count) {
    const at::Tensor block = rows.narrow(0, first, count).to(at::kFloat);
    at::Tensor block_sums = result.logsumexp.narrow(0, first, count);
    at::logsumexp_out(block_sums, block, 1);
    const float* values = block.const_data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i) {
      sum += static_cast<double>(sums[first + i]) -
             static_cast<double>(values[i * rows.size(1) + target[first + i]]);
    }
  });
  result.loss =
      at::scalar_tensor(sum / static_cast<double>(rows.size(0)), result.logsumexp.options());
  return result;
}

void narrow_cross_entropy_backward(const at::Tensor& rows, const at::Tensor& logsumexp,
                                   const std::int64_t* target, double scale) {
  for_blocks(rows, [&](std::int64_t first, std::int64_t count) {
    at::Tensor logits = rows.narrow(0, first, count);
    at::Tensor block = logits.to(at::kFloat);
    block.sub_(logsumexp.narrow(0, first, count).unsqueeze(1)).exp_().mul_(scale);
    float* values = block.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i) {
      values[i * rows.size(1) + target[first + i]] -= static_cast<float>(scale);
    }
    logits.copy_(block);
  });
}

}  // namespace

CrossEntropyResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  SHARDBENCH_CHECK(logits.is_contiguous(), "cross entropy works in place on contiguous logits");
  at::Tensor rows = as_rows(logits.detach());
  const at::Tensor flat = flat_targets(rows, targets);
  if (!on_host(rows)) return portable::cross_entropy(rows, flat);
  const std::int64_t classes = rows.size(1);
  const std::int64_t* target = flat.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    SHARDBENCH_CHECK(target[i] >= 0 && target[i] < classes,
                     "target {} at position {} is outside {} classes", target[i], i, classes);
  }
  if (is_half_width(rows)) return narrow_cross_entropy(rows, target);
  // The kernel reads a row before it writes it, so input and output may be the same memory.
  at::_log_softmax_out(rows, rows, 1, /*half_to_float=*/false);
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "cross_entropy", [&] {
    const scalar_t* values = rows.const_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      sum -= static_cast<double>(values[i * classes + target[i]]);
    }
  });
  return {at::scalar_tensor(sum / static_cast<double>(flat.numel()), logits.options()), {}};
}

at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& log_probabilities,
                                  const at::Tensor& targets, const at::Tensor& logsumexp) {
  const at::Tensor rows = as_rows(log_probabilities);
  const at::Tensor flat = flat_targets(rows, targets);
  if (!on_host(rows)) {
    portable::cross_entropy_backward(grad, rows, flat, logsumexp);
    return log_probabilities;
  }
  const std::int64_t classes = rows.size(1);
  const std::int64_t* target = flat.const_data_ptr<std::int64_t>();
  const double scale = grad.item<double>() / static_cast<double>(flat.numel());
  if (logsumexp.defined()) {
    narrow_cross_entropy_backward(rows, logsumexp, target, scale);
    return log_probabilities;
  }
  for_blocks(rows, [&](std::int64_t first, std::int64_t count) {
    rows.narrow(0, first, count).exp_().mul_(scale);
  });
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "cross_entropy_backward", [&] {
    scalar_t* values = rows.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      values[i * classes + target[i]] -= static_cast<scalar_t>(scale);
    }
  });
  return log_probabilities;
}

}  // namespace shardbench::ops

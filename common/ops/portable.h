#pragma once

#include <ATen/core/Tensor.h>

#include "common/ops/cross_entropy.h"
#include "common/ops/forward_context.h"
#include "common/ops/rms_norm.h"

/// The operations that have kernels of this project's own, once more in ATen's operations: for
/// tensors of any device. (Those that ATen has in one call, and attention, say so where they are.)
/// Arguments, results and consumed memory are those of the functions of the same name in the
/// operations' headers, which check shapes and choose. None of them waits for a device or reads its
/// memory from the host, so what is checked by value there (targets and indices in range) is the
/// device's own check here.
namespace shardbench::ops::portable {

/// `rows` [n, width] contiguous, and so on: as the callers have them after their checks.
RmsNormResult rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
void rms_norm_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                          const at::Tensor& target, bool accumulate);
at::Tensor rms_norm_input_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                               const at::Tensor& weight);

/// `rows` [n, classes], `targets` int64 [n].
CrossEntropyResult cross_entropy(const at::Tensor& rows, const at::Tensor& targets);
void cross_entropy_backward(const at::Tensor& grad, const at::Tensor& rows,
                            const at::Tensor& targets, const at::Tensor& logsumexp);

/// Adds rows [n, width] to the rows of `target` that `indices` [n] name. A target too narrow to add
/// up in needs an fp32 one beside it for the time.
void add_rows(const at::Tensor& rows, const at::Tensor& indices, const at::Tensor& target);

/// Turns contiguous x [B, T, heads * size] in place; `direction` is 1, or -1 to turn back.
void rotary(const at::Tensor& x, const at::Tensor& table, double direction);

/// `sample_keys`: one 64-bit key of each sample, as signed numbers; threshold of 32 bits.
at::Tensor dropout(const at::Tensor& x, double p, at::IntArrayRef sample_keys,
                   std::int64_t threshold);

}  // namespace shardbench::ops::portable

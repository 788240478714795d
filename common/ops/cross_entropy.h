#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// What a cross entropy leaves behind.
struct CrossEntropyResult {
  at::Tensor loss;       ///< a scalar of the logits' dtype, fp32 for bf16 and fp16
  at::Tensor logsumexp;  ///< one per row (fp64 on the host); undefined where the logits' memory has
                         ///< the log-softmax
};

/// Mean over all rows of -log softmax(logits)[target]. logits [..., classes] contiguous, targets
/// int64 [...].
///
/// Consumes `logits`: their memory holds what the backward needs (on the host still the logits),
/// and the gradient after cross_entropy_backward, so only one vocabulary-sized buffer ever lives.
/// The sum runs in double precision by row order. Throws InvariantError naming the first target
/// outside [0, classes).
CrossEntropyResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// Turns what cross_entropy left in the logits' memory into their gradient, in place, and returns
/// it. `grad` is the scalar gradient of the loss, `logsumexp` the result's.
at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& kept,
                                  const at::Tensor& targets, const at::Tensor& logsumexp);

}  // namespace shardbench::ops

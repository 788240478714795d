#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops {

/// Mean over all rows of -log softmax(logits)[target]: a scalar of the logits' dtype. logits
/// [..., classes] contiguous, targets int64 [...].
///
/// Consumes `logits`: their memory holds the log-softmax afterwards, and the gradient after
/// cross_entropy_backward, so only one vocabulary-sized buffer ever lives. The sum runs in double
/// precision by row order. Throws InvariantError naming the first target outside [0, classes).
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// Turns the log-softmax that cross_entropy left in `log_probabilities` into the gradient of the
/// logits, in place, and returns it. `grad` is the scalar gradient of the loss.
at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& log_probabilities,
                                  const at::Tensor& targets);

}  // namespace shardbench::ops

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shardbench::functional {

/// Operations without parameters, joined to autograd. Each keeps only what its backward cannot
/// compute again. Call them qualified: ATen has functions of the same names.

/// GELU, tanh form. Keeps its input.
at::Tensor gelu(const at::Tensor& x);

/// Causal attention of `heads` heads over qkv [B, T, 3 * width]; returns [B, T, width]. Keeps qkv,
/// its output and one number per query and head.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

/// x + branch, in the memory of `branch`, which must not be used afterwards. Keeps nothing.
at::Tensor residual_add(const at::Tensor& x, const at::Tensor& branch);

/// x [B, ...] + rows [...], in the memory of `x`, which must not be used afterwards.
at::Tensor add_to_each(const at::Tensor& x, const at::Tensor& rows);

/// Mean cross entropy of logits [..., classes] and targets int64 [...]; a scalar. Consumes the
/// logits: their memory turns into log-probabilities, and into their own gradient in backward.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace shardbench::functional

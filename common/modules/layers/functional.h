#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shardbench::functional {

/// Operations without parameters, joined to autograd. Each keeps only what its backward cannot
/// compute again. Call them qualified: ATen has functions of the same names.

/// GELU, tanh form. Keeps its input.
at::Tensor gelu(const at::Tensor& x);

/// max(x, 0), in the memory of `x`, which must not be used afterwards. Keeps its output, which must
/// not be overwritten before its backward: that is refused.
at::Tensor relu(const at::Tensor& x);

/// Causal attention of `heads` heads over qkv [B, T, 3 * width]; returns [B, T, width]. Keeps qkv,
/// its output and one number per query and head.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

/// Causal attention of q [B, T, heads * size] over k and v [B, T, kv_heads * size], which groups of
/// heads share; returns [B, T, heads * size]. Keeps its inputs, its output and one number per query
/// and head.
at::Tensor grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             std::int64_t heads, std::int64_t kv_heads);

/// Rotary position embedding of x [B, T, heads * size], in the memory of `x`, which must not be
/// used afterwards; `table` as ops::rotary takes it. Keeps only the table.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& table);

/// silu(gate) * up. Keeps both.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// x + branch, in the memory of `branch`, which must not be used afterwards. Keeps nothing.
at::Tensor residual_add(const at::Tensor& x, const at::Tensor& branch);

/// x [B, ...] + rows [...], in the memory of `x`, which must not be used afterwards.
at::Tensor add_to_each(const at::Tensor& x, const at::Tensor& rows);

/// Mean cross entropy of logits [..., classes] and targets int64 [...]; a scalar. Consumes the
/// logits: their memory turns into log-probabilities, and into their own gradient in backward.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace shardbench::functional

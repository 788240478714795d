#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shardbench::ops {

/// Output of attention and what its backward needs besides the input.
struct AttentionResult {
  at::Tensor out;        ///< [B, T, heads * size], contiguous
  at::Tensor logsumexp;  ///< of the scaled scores, per query
};

/// Causal multi-head attention. `qkv` [B, T, 3 * heads * size] holds queries, keys and values of
/// all heads side by side; scores are scaled by 1 / sqrt(size). The fused CPU kernel where it
/// applies (any floating type, at least one element), else plain products.
AttentionResult causal_attention(const at::Tensor& qkv, std::int64_t heads);

/// Gradient of qkv, [B, T, 3 * heads * size]. `out` and `logsumexp` are those of the forward.
at::Tensor causal_attention_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                     const AttentionResult& forward, std::int64_t heads);

/// The same two from plain products, for what the fused kernel refuses; materialises [B, heads, T,
/// T]. `logsumexp` is [B, heads, T] here: a forward and its backward must be of the same kind.
AttentionResult causal_attention_plain(const at::Tensor& qkv, std::int64_t heads);
at::Tensor causal_attention_plain_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                           const AttentionResult& forward, std::int64_t heads);

}  // namespace shardbench::ops

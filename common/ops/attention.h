#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace shardbench::ops {

/// Output of attention and what its backward needs besides the input.
struct AttentionResult {
  at::Tensor out;        ///< [B, T, heads * size], contiguous
  at::Tensor logsumexp;  ///< of the scaled scores, [B, heads, T]
};

/// Causal multi-head attention. `qkv` [B, T, 3 * heads * size] holds queries, keys and values of
/// all heads side by side; scores are scaled by 1 / sqrt(size). On the host by blocks of queries,
/// against the keys that they see (memory: [heads, block, T] of one sample); elsewhere by plain
/// products.
AttentionResult causal_attention(const at::Tensor& qkv, std::int64_t heads);

/// Gradient of qkv, [B, T, 3 * heads * size]. `out` and `logsumexp` are those of the forward.
at::Tensor causal_attention_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                     const AttentionResult& forward, std::int64_t heads);

/// The same two from plain products, for any device; materialises [B, heads, T, T]. A forward and
/// its backward must be of the same kind.
AttentionResult causal_attention_plain(const at::Tensor& qkv, std::int64_t heads);
at::Tensor causal_attention_plain_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                           const AttentionResult& forward, std::int64_t heads);

/// Output of grouped attention and what its backward needs besides the inputs.
struct GroupedAttentionResult {
  at::Tensor out;                     ///< [B, T, heads * size], contiguous
  std::vector<at::Tensor> logsumexp;  ///< of the i-th query head of all groups, for each i
};

/// Causal attention in which groups of query heads share keys and values (Ainslie et al. 2023).
/// q [B, T, heads * size]; k and v [B, T, kv_heads * size], where kv_heads divides heads and query
/// head h reads key head h / (heads / kv_heads). Keys and values are never repeated in memory: the
/// kernel runs once for each query head of a group, over all groups.
GroupedAttentionResult grouped_attention(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, std::int64_t heads,
                                         std::int64_t kv_heads);

/// Gradients of the three inputs, each like its input; those of k and v are summed over the group
/// in the order of its heads.
struct AttentionGrads {
  at::Tensor q, k, v;
};
AttentionGrads grouped_attention_backward(const at::Tensor& grad, const at::Tensor& q,
                                          const at::Tensor& k, const at::Tensor& v,
                                          const GroupedAttentionResult& forward, std::int64_t heads,
                                          std::int64_t kv_heads);

}  // namespace shardbench::ops

#include "common/ops/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "common/core/error.h"

namespace shardbench::ops {

namespace {

/// Queries, keys and values as views [B, heads, T, size] of qkv.
struct Heads {
  at::Tensor q, k, v;
};

Heads split_heads(const at::Tensor& qkv, std::int64_t heads) {
  SHARDBENCH_CHECK(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
                   "attention of {} heads over {} dimensions, width {}", heads, qkv.dim(),
                   qkv.size(-1));
  const std::int64_t size = qkv.size(2) / (3 * heads);
  const at::Tensor parts = qkv.view({qkv.size(0), qkv.size(1), 3, heads, size});
  const auto part = [&](std::int64_t i) { return parts.select(2, i).transpose(1, 2); };
  return {part(0), part(1), part(2)};
}

/// [B, T, heads * size] as a view [B, heads, T, size].
at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

/// [B, heads, T, size] as contiguous [B, T, heads * size]; a view where the memory allows.
at::Tensor merge_heads(const at::Tensor& x) {
  const at::Tensor by_token = x.transpose(1, 2);
  return by_token.contiguous().view(
      {by_token.size(0), by_token.size(1), by_token.size(2) * by_token.size(3)});
}

at::Tensor join_grads(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                      const at::Tensor& like) {
  at::Tensor joined = at::empty(like.sizes(), like.options());
  const std::int64_t heads = dq.size(1);
  const Heads parts = split_heads(joined, heads);
  at::Tensor(parts.q).copy_(dq);
  at::Tensor(parts.k).copy_(dk);
  at::Tensor(parts.v).copy_(dv);
  return joined;
}

bool fused_kernel_applies(const at::Tensor& qkv) {
  return qkv.is_cpu() && qkv.numel() > 0 && at::isFloatingType(qkv.scalar_type());
}

/// Scaled scores [B, heads, T, T] with minus infinity above the diagonal.
at::Tensor masked_scores(const Heads& h) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(h.q.size(3)));
  const at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).mul_(scale);
  const at::Tensor later =
      at::ones({h.q.size(2), h.q.size(2)}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

}  // namespace

AttentionResult causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  if (!fused_kernel_applies(qkv)) return causal_attention_plain(qkv, heads);
  const Heads h = split_heads(qkv, heads);
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      h.q, h.k, h.v, /*dropout_p=*/0.0, /*is_causal=*/true);
  return {merge_heads(out), std::move(logsumexp)};
}

at::Tensor causal_attention_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                     const AttentionResult& forward, std::int64_t heads) {
  if (!fused_kernel_applies(qkv)) return causal_attention_plain_backward(grad, qkv, forward, heads);
  const Heads h = split_heads(qkv, heads);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      by_head(grad.contiguous(), heads), h.q, h.k, h.v, by_head(forward.out, heads),
      forward.logsumexp, /*dropout_p=*/0.0, /*is_causal=*/true);
  return join_grads(dq, dk, dv, qkv);
}

AttentionResult causal_attention_plain(const at::Tensor& qkv, std::int64_t heads) {
  const Heads h = split_heads(qkv, heads);
  const at::Tensor scores = masked_scores(h);
  const at::Tensor logsumexp = scores.logsumexp(-1);
  const at::Tensor weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_();
  return {merge_heads(at::matmul(weights, h.v)), logsumexp};
}

at::Tensor causal_attention_plain_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                           const AttentionResult& forward, std::int64_t heads) {
  const Heads h = split_heads(qkv, heads);
  const at::Tensor dout = by_head(grad.contiguous(), heads);
  const double scale = 1.0 / std::sqrt(static_cast<double>(h.q.size(3)));
  const at::Tensor weights = masked_scores(h).sub_(forward.logsumexp.unsqueeze(-1)).exp_();
  const at::Tensor dv = at::matmul(weights.transpose(2, 3), dout);
  // d(score) = weight * (d(weight) - sum over keys of weight * d(weight)); that sum is dout . out.
  const at::Tensor row_sum = dout.mul(by_head(forward.out, heads)).sum(-1, /*keepdim=*/true);
  const at::Tensor dscores =
      at::matmul(dout, h.v.transpose(2, 3)).sub_(row_sum).mul_(weights).mul_(scale);
  return join_grads(at::matmul(dscores, h.k), at::matmul(dscores.transpose(2, 3), h.q), dv, qkv);
}

}  // namespace shardbench::ops

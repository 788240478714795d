#include "common/ops/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "common/core/error.h"
#include "common/ops/dtype.h"
#include "common/ops/on_host.h"

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

at::Tensor join_grads(const AttentionGrads& grads, const at::Tensor& like) {
  at::Tensor joined = at::empty(like.sizes(), like.options());
  const Heads parts = split_heads(joined, grads.q.size(1));
  at::Tensor(parts.q).copy_(grads.q);
  at::Tensor(parts.k).copy_(grads.k);
  at::Tensor(parts.v).copy_(grads.v);
  return joined;
}

bool fused_kernel_applies(const at::Tensor& queries) {
  return on_host(queries) && queries.numel() > 0 && at::isFloatingType(queries.scalar_type());
}

/// Scaled scores [B, heads, T, T] with minus infinity above the diagonal; fp32 for bf16 and fp16.
at::Tensor masked_scores(const Heads& h) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(h.q.size(3)));
  const at::Tensor products = at::matmul(h.q, h.k.transpose(2, 3));
  const at::Tensor scores = in_compute_type(products, products).mul_(scale);
  const at::Tensor later =
      at::ones({h.q.size(2), h.q.size(2)}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

// Below, `out` and gradients are by head: [B, heads, T, size], in whatever memory order.

AttentionResult fused_forward(const Heads& h) {
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      h.q, h.k, h.v, /*dropout_p=*/0.0, /*is_causal=*/true);
  return {std::move(out), std::move(logsumexp)};
}

AttentionGrads fused_backward(const at::Tensor& dout, const Heads& h, const at::Tensor& out,
                              const at::Tensor& logsumexp) {
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      dout, h.q, h.k, h.v, out, logsumexp, /*dropout_p=*/0.0, /*is_causal=*/true);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

AttentionResult plain_forward(const Heads& h) {
  const at::Tensor scores = masked_scores(h);
  const at::Tensor logsumexp = scores.logsumexp(-1);
  const at::Tensor weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_().to(h.v.scalar_type());
  return {at::matmul(weights, h.v), logsumexp};
}

AttentionGrads plain_backward(const at::Tensor& dout, const Heads& h, const at::Tensor& out,
                              const at::Tensor& logsumexp) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(h.q.size(3)));
  const at::ScalarType type = h.v.scalar_type();
  const at::Tensor weights = masked_scores(h).sub_(logsumexp.unsqueeze(-1)).exp_();
  const at::Tensor dv = at::matmul(weights.to(type).transpose(2, 3), dout);
  // d(score) = weight * (d(weight) - sum over keys of weight * d(weight)); that sum is dout . out.
  const at::Tensor row_sum = in_compute_type(dout, dout).mul(out).sum(-1, /*keepdim=*/true);
  const at::Tensor dweights = at::matmul(dout, h.v.transpose(2, 3));
  const at::Tensor dscores =
      in_compute_type(dweights, dweights).sub_(row_sum).mul_(weights).mul_(scale).to(type);
  return {at::matmul(dscores, h.k), at::matmul(dscores.transpose(2, 3), h.q), dv};
}

/// Of x [B, T, heads * size], the i-th head of each of `groups` groups: a view [B, groups, T,
/// size].
at::Tensor one_of_each_group(const at::Tensor& x, std::int64_t heads, std::int64_t groups,
                             std::int64_t i) {
  return x.view({x.size(0), x.size(1), groups, heads / groups, x.size(2) / heads})
      .select(3, i)
      .transpose(1, 2);
}

void check_groups(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t heads,
                  std::int64_t kv_heads) {
  SHARDBENCH_CHECK(
      q.dim() == 3 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && q.size(2) % heads == 0,
      "attention of {} heads in {} groups over width {}", heads, kv_heads, q.size(-1));
  const at::IntArrayRef sizes = k.sizes();
  SHARDBENCH_CHECK(sizes == v.sizes() && sizes.size() == 3 && sizes[0] == q.size(0) &&
                       sizes[1] == q.size(1) && sizes[2] == q.size(2) / heads * kv_heads,
                   "keys or values do not fit {} queries of {} heads", q.size(1), heads);
}

}  // namespace

AttentionResult causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  if (!fused_kernel_applies(qkv)) return causal_attention_plain(qkv, heads);
  AttentionResult result = fused_forward(split_heads(qkv, heads));
  return {merge_heads(result.out), std::move(result.logsumexp)};
}

at::Tensor causal_attention_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                     const AttentionResult& forward, std::int64_t heads) {
  if (!fused_kernel_applies(qkv)) return causal_attention_plain_backward(grad, qkv, forward, heads);
  return join_grads(fused_backward(by_head(grad.contiguous(), heads), split_heads(qkv, heads),
                                   by_head(forward.out, heads), forward.logsumexp),
                    qkv);
}

AttentionResult causal_attention_plain(const at::Tensor& qkv, std::int64_t heads) {
  AttentionResult result = plain_forward(split_heads(qkv, heads));
  return {merge_heads(result.out), std::move(result.logsumexp)};
}

at::Tensor causal_attention_plain_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                           const AttentionResult& forward, std::int64_t heads) {
  return join_grads(plain_backward(by_head(grad.contiguous(), heads), split_heads(qkv, heads),
                                   by_head(forward.out, heads), forward.logsumexp),
                    qkv);
}

GroupedAttentionResult grouped_attention(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, std::int64_t heads,
                                         std::int64_t kv_heads) {
  check_groups(q, k, v, heads, kv_heads);
  const auto kernel = fused_kernel_applies(q) ? fused_forward : plain_forward;
  const at::Tensor keys = by_head(k, kv_heads), values = by_head(v, kv_heads);
  GroupedAttentionResult result;
  const std::int64_t queries = heads / kv_heads;
  if (queries > 1) result.out = at::empty(q.sizes(), q.options());
  for (std::int64_t i = 0; i < queries; ++i) {
    AttentionResult part = kernel({one_of_each_group(q, heads, kv_heads, i), keys, values});
    result.logsumexp.push_back(std::move(part.logsumexp));
    if (queries == 1) {
      result.out = merge_heads(part.out);
    } else {
      one_of_each_group(result.out, heads, kv_heads, i).copy_(part.out);
    }
  }
  return result;
}

AttentionGrads grouped_attention_backward(const at::Tensor& grad, const at::Tensor& q,
                                          const at::Tensor& k, const at::Tensor& v,
                                          const GroupedAttentionResult& forward, std::int64_t heads,
                                          std::int64_t kv_heads) {
  check_groups(q, k, v, heads, kv_heads);
  const auto kernel = fused_kernel_applies(q) ? fused_backward : plain_backward;
  const at::Tensor keys = by_head(k, kv_heads), values = by_head(v, kv_heads);
  const at::Tensor dout = grad.contiguous();
  AttentionGrads result;
  result.q = at::empty(q.sizes(), q.options());
  for (std::int64_t i = 0; i < heads / kv_heads; ++i) {
    const auto part = [&](const at::Tensor& x) { return one_of_each_group(x, heads, kv_heads, i); };
    const AttentionGrads grads = kernel(part(dout), {part(q), keys, values}, part(forward.out),
                                        forward.logsumexp[static_cast<std::size_t>(i)]);
    part(result.q).copy_(grads.q);
    result.k = i == 0 ? grads.k : result.k.add_(grads.k);
    result.v = i == 0 ? grads.v : result.v.add_(grads.v);
  }
  return {result.q, merge_heads(result.k), merge_heads(result.v)};
}

}  // namespace shardbench::ops

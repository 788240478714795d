#include "common/ops/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/core/error.h"
#include "common/ops/pointwise.h"

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

/// Into the layout and the dtype of qkv.
at::Tensor join_grads(const AttentionGrads& grads, const at::Tensor& like) {
  at::Tensor joined = at::empty(like.sizes(), like.options());
  const Heads parts = split_heads(joined, grads.q.size(1));
  at::Tensor(parts.q).copy_(grads.q);
  at::Tensor(parts.k).copy_(grads.k);
  at::Tensor(parts.v).copy_(grads.v);
  return joined;
}

double scale_of(const Heads& h) { return 1.0 / std::sqrt(static_cast<double>(h.q.size(3))); }

/// Scaled scores [B, heads, T, T] with minus infinity above the diagonal; fp32 for bf16 and fp16.
at::Tensor masked_scores(const Heads& h) {
  const at::Tensor products = at::matmul(h.q, h.k.transpose(2, 3));
  const at::Tensor scores = in_compute_type(products, products).mul_(scale_of(h));
  const at::Tensor later =
      at::ones({h.q.size(2), h.q.size(2)}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

// Below, `out` and gradients are by head: [B, heads, T, size], in whatever memory order; gradients
// may be wider than what they are of.

/// Queries that are taken at a time, against all keys that the last of them sees: enough for the
/// products' speed, few enough that little is computed only to be masked.
constexpr std::int64_t kQueries = 64;

/// Of all heads of one sample, queries first to first + count and the keys that they see.
struct Block {
  Block(const Heads& h, std::int64_t sample, std::int64_t first_query)
      : first(first_query), count(std::min(kQueries, h.q.size(2) - first_query)) {
    q = queries_of(h.q[sample]);
    k = seen_of(h.k[sample]);
    v = seen_of(h.v[sample]);
  }
  at::Tensor queries_of(const at::Tensor& x) const { return x.narrow(1, first, count); }
  at::Tensor seen_of(const at::Tensor& x) const { return x.narrow(1, 0, first + count); }
  at::Tensor scores() const { return at::bmm(q, k.transpose(1, 2)); }
  /// Keys that the row of a [heads, count, keys] matrix sees; the rest of it is masked.
  std::int64_t seen(std::int64_t row) const { return first + row % count + 1; }

  std::int64_t first, count;
  at::Tensor q, k, v;
};

template <typename F>
void for_blocks(const Heads& h, F f) {
  if (h.q.numel() == 0) return;
  for (std::int64_t sample = 0; sample < h.q.size(0); ++sample) {
    for (std::int64_t first = 0; first < h.q.size(2); first += kQueries) {
      f(sample, Block(h, sample, first));
    }
  }
}

/// Calls f(row, keys that it sees, memory of the row) for all rows of scores [heads, queries,
/// keys], and writes zeros for the keys that it does not see.
template <typename F>
void for_score_rows(const at::Tensor& scores, const Block& block, F f) {
  const std::int64_t keys = scores.size(2);
  for_rows(scores.size(0) * scores.size(1), keys, [&](std::int64_t row) {
    const std::int64_t seen = block.seen(row);
    f(row, seen, element_to(scores, row * keys));
    std::memset(element_to(scores, row * keys + seen), 0,
                static_cast<std::size_t>(keys - seen) * scores.element_size());
  });
}

/// bf16 and fp16 in fp32.
Heads widened(const Heads& h) {
  return {in_compute_type(h.q, h.q), in_compute_type(h.k, h.k), in_compute_type(h.v, h.v)};
}

AttentionResult blocked_forward(const Heads& given) {
  const Heads h = widened(given);
  const DType dtype = dtype_of(h.q);
  const double scale = scale_of(h);
  const at::IntArrayRef sizes = h.q.sizes();
  AttentionResult result;
  result.out =
      at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, given.q.options()).transpose(1, 2);
  result.logsumexp = at::empty({sizes[0], sizes[1], sizes[2]}, h.q.options());
  for_blocks(h, [&](std::int64_t sample, const Block& block) {
    const at::Tensor sums =
        at::empty({sizes[1], block.count}, at::TensorOptions().dtype(at::kDouble));
    double* const logarithm = sums.mutable_data_ptr<double>();
    const at::Tensor weights = block.scores();
    for_score_rows(weights, block, [&](std::int64_t row, std::int64_t seen, void* memory) {
      const auto sum = kernels::sum_of_exponentials(dtype, seen, memory, scale);
      kernels::exponentials(dtype, seen, memory, scale, sum.largest, 1 / sum.sum);
      logarithm[row] = sum.logarithm();
    });
    block.queries_of(result.logsumexp[sample]).copy_(sums);
    block.queries_of(result.out[sample]).copy_(at::bmm(weights, block.v));
  });
  return result;
}

AttentionGrads blocked_backward(const at::Tensor& grad, const Heads& given, const at::Tensor& out,
                                const at::Tensor& logsumexp) {
  const Heads h = widened(given);
  const at::Tensor dout = in_compute_type(grad, grad);
  const DType dtype = dtype_of(h.q);
  const double scale = scale_of(h);
  // d(score) = weight * (d(weight) - sum over keys of weight * d(weight)); that sum is dout . out.
  const at::Tensor row_sums = at::mul(dout, out).sum(-1, /*keepdim=*/false, at::kDouble);
  const auto zeros = [&] { return at::zeros(h.q.sizes(), h.q.options()); };
  AttentionGrads grads{at::empty(h.q.sizes(), h.q.options()), zeros(), zeros()};
  for_blocks(h, [&](std::int64_t sample, const Block& block) {
    const at::Tensor sums = block.queries_of(logsumexp[sample]).to(at::kDouble).contiguous();
    const at::Tensor dots = block.queries_of(row_sums[sample]).contiguous();
    const double* const sum = sums.const_data_ptr<double>();
    const double* const dot = dots.const_data_ptr<double>();
    const at::Tensor d = block.queries_of(dout[sample]);
    const at::Tensor weights = block.scores();
    const at::Tensor dscores = at::bmm(d, block.v.transpose(1, 2));
    const std::int64_t keys = weights.size(2);
    for_score_rows(weights, block, [&](std::int64_t row, std::int64_t seen, void* memory) {
      kernels::exponentials(dtype, seen, memory, scale, sum[row], 1.0);
    });
    for_score_rows(dscores, block, [&](std::int64_t row, std::int64_t seen, void* memory) {
      kernels::softmax_backward(dtype, seen, element_of(weights, row * keys), memory, scale,
                                dot[row]);
    });
    block.queries_of(grads.q[sample]).copy_(at::bmm(dscores, block.k));
    block.seen_of(grads.k[sample]).baddbmm_(dscores.transpose(1, 2), block.q);
    block.seen_of(grads.v[sample]).baddbmm_(weights.transpose(1, 2), d);
  });
  return grads;
}

AttentionResult plain_forward(const Heads& h) {
  const at::Tensor scores = masked_scores(h);
  const at::Tensor logsumexp = scores.logsumexp(-1);
  const at::Tensor weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_().to(h.v.scalar_type());
  return {at::matmul(weights, h.v), logsumexp};
}

AttentionGrads plain_backward(const at::Tensor& dout, const Heads& h, const at::Tensor& out,
                              const at::Tensor& logsumexp) {
  const double scale = scale_of(h);
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
  if (!has_kernels(qkv)) return causal_attention_plain(qkv, heads);
  AttentionResult result = blocked_forward(split_heads(qkv, heads));
  return {merge_heads(result.out), std::move(result.logsumexp)};
}

at::Tensor causal_attention_backward(const at::Tensor& grad, const at::Tensor& qkv,
                                     const AttentionResult& forward, std::int64_t heads) {
  if (!has_kernels(qkv)) return causal_attention_plain_backward(grad, qkv, forward, heads);
  return join_grads(blocked_backward(by_head(grad.contiguous(), heads), split_heads(qkv, heads),
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
  const auto kernel = has_kernels(q) ? blocked_forward : plain_forward;
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
  const auto kernel = has_kernels(q) ? blocked_backward : plain_backward;
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
  return {result.q, merge_heads(result.k).to(k.scalar_type()),
          merge_heads(result.v).to(v.scalar_type())};
}

}  // namespace shardbench::ops

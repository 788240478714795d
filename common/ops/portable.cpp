#include "common/ops/portable.h"

#include <ATen/ATen.h>

#include "common/ops/dtype.h"
#include "common/ops/shapes.h"
#include "common/ops/store.h"

namespace shardbench::ops::portable {

namespace {

/// What `x` computes in: fp32 for bf16 and fp16, else as it is.
at::Tensor widened(const at::Tensor& x) { return in_compute_type(x, x); }

at::Tensor per_row(const at::Tensor& numbers) { return numbers.unsqueeze(1); }

}  // namespace

RmsNormResult rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor rows = widened(as_rows(x));
  const at::Tensor rrms = rows.square().mean(1).add_(eps).sqrt_().reciprocal_();
  at::Tensor y = rows.mul(per_row(rrms)).mul_(widened(weight));
  return {y.to(x.scalar_type()).view(x.sizes()), rrms};
}

void rms_norm_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                          const at::Tensor& target, bool accumulate) {
  const at::Tensor terms = widened(as_rows(grad)).mul(widened(as_rows(x))).mul_(per_row(rrms));
  store(target, at::sum(terms, {0}, /*keepdim=*/false, at::kDouble).to(rrms.scalar_type()),
        accumulate);
}

at::Tensor rms_norm_input_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rrms,
                               const at::Tensor& weight) {
  const at::Tensor rows = widened(as_rows(x));
  at::Tensor weighted = widened(as_rows(grad)).mul(widened(weight));
  const at::Tensor pull = weighted.mul(rows).sum(1).mul_(rrms).mul_(rrms).div_(rows.size(1));
  weighted.sub_(rows.mul(per_row(pull))).mul_(per_row(rrms));
  return weighted.to(x.scalar_type()).view(x.sizes());
}

CrossEntropyResult cross_entropy(const at::Tensor& rows, const at::Tensor& targets) {
  const at::Tensor column = per_row(targets);
  CrossEntropyResult result;
  at::Tensor terms;
  if (is_half_width(rows)) {
    result.logsumexp = at::logsumexp(rows.to(at::kFloat), 1);
    const at::Tensor chosen = rows.gather(1, column).squeeze(1);
    terms = result.logsumexp.to(at::kDouble).sub_(chosen.to(at::kDouble));
  } else {
    at::Tensor out = rows;  // a handle: the kernel reads a row before it writes it
    at::_log_softmax_out(out, rows, 1, /*half_to_float=*/false);
    terms = rows.gather(1, column).to(at::kDouble).neg_();
  }
  result.loss = terms.sum()
                    .div_(static_cast<double>(rows.size(0)))
                    .to(is_half_width(rows) ? at::kFloat : rows.scalar_type());
  return result;
}

void cross_entropy_backward(const at::Tensor& grad, const at::Tensor& rows,
                            const at::Tensor& targets, const at::Tensor& logsumexp) {
  const at::Tensor column = per_row(targets);
  at::Tensor wide = widened(rows);
  const at::Tensor scale = grad.to(at::kDouble)
                               .div_(static_cast<double>(rows.size(0)))
                               .to(wide.scalar_type())
                               .reshape({1, 1});
  if (logsumexp.defined()) wide.sub_(per_row(logsumexp));
  wide.exp_().mul_(scale);
  wide.scatter_(1, column, wide.gather(1, column).sub_(scale));
  if (!wide.is_same(rows)) at::Tensor(rows).copy_(wide);
}

void add_rows(const at::Tensor& rows, const at::Tensor& indices, const at::Tensor& target) {
  at::Tensor wide = widened(target);
  // Sorted by index on a GPU: the same order of additions in every run.
  wide.index_put_({indices}, rows.to(wide.scalar_type()), /*accumulate=*/true);
  if (!wide.is_same(target)) at::Tensor(target).copy_(wide);
}

void rotary(const at::Tensor& x, const at::Tensor& table, double direction) {
  const std::int64_t size = table.size(1), half = size / 2, length = x.size(1);
  const at::Tensor heads = x.view({x.size(0), length, x.size(2) / size, size});
  const at::Tensor angles = table.narrow(0, 0, length).unsqueeze(1);
  const at::Tensor cosines = angles.narrow(2, 0, half);
  const at::Tensor sines = angles.narrow(2, half, half).mul(direction);
  at::Tensor first = heads.narrow(3, 0, half), second = heads.narrow(3, half, half);
  const at::Tensor a = widened(first), b = widened(second);
  const at::Tensor turned = a.mul(cosines).sub_(b.mul(sines));
  second.copy_(a.mul(sines).add_(b.mul(cosines)));
  first.copy_(turned);
}

namespace {

/// x >> bits without the sign, of 64-bit numbers.
at::Tensor shifted_right(const at::Tensor& x, std::int64_t bits) {
  return x.bitwise_right_shift(bits).bitwise_and_((std::int64_t{1} << (64 - bits)) - 1);
}

/// The finalizer of SplitMix64, as in dropout.cpp.
at::Tensor mixed(at::Tensor x) {
  x = x.bitwise_xor(shifted_right(x, 30)).mul_(static_cast<std::int64_t>(0xBF58476D1CE4E5B9ull));
  x = x.bitwise_xor(shifted_right(x, 27)).mul_(static_cast<std::int64_t>(0x94D049BB133111EBull));
  return x.bitwise_xor(shifted_right(x, 31));
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, at::IntArrayRef sample_keys,
                   std::int64_t threshold) {
  const at::Tensor in = x.contiguous();
  const std::int64_t samples = in.size(0);
  const std::int64_t count = samples == 0 ? 0 : in.numel() / samples;
  const std::int64_t pairs = (count + 1) / 2;
  const auto numbers = in.options().dtype(at::kLong);
  const at::Tensor keys = at::tensor(sample_keys, at::kLong).to(numbers, /*non_blocking=*/true);
  const at::Tensor draws = mixed(at::arange(pairs, numbers)
                                     .mul_(static_cast<std::int64_t>(0x9E3779B97F4A7C15ull))
                                     .unsqueeze(0)
                                     .add(per_row(keys)));
  const at::Tensor bits = at::stack({draws.bitwise_and(0xFFFFFFFFll), shifted_right(draws, 32)}, 2)
                              .view({samples, 2 * pairs})
                              .narrow(1, 0, count);
  const at::Tensor wide = widened(in);
  const at::Tensor factors = bits.ge(threshold).to(wide.scalar_type()).mul_(1.0 / (1.0 - p));
  return wide.mul(factors.view(in.sizes())).to(in.scalar_type());
}

}  // namespace shardbench::ops::portable

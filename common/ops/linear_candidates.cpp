#include "common/ops/linear_candidates.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>

#include "common/ops/dtype.h"
#include "common/ops/on_host.h"
#include "common/ops/openblas.h"
#include "common/ops/shapes.h"
#include "common/ops/store.h"

namespace at::native {
// result = beta result + alpha a b, by oneDNN, all of one dtype, for strides of any matrix and its
// transpose; exported by LibTorch, but in none of its headers. Weak: null in one that has it under
// another signature.
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                                         float beta, float alpha);
}  // namespace at::native

namespace shardbench::ops {

namespace {

using Activations = c10::List<std::optional<at::Scalar>>;
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, std::string_view, Activations,
                                   std::optional<std::string_view>);

/// mkldnn::_linear_pointwise, which Inductor uses for x W^T + b; nothing where LibTorch was built
/// without oneDNN.
const std::optional<c10::TypedOperatorHandle<LinearPointwise>>& linear_pointwise() {
  static const auto handle = [] {
    std::optional<c10::TypedOperatorHandle<LinearPointwise>> typed;
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (found && found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      typed = found->typed<LinearPointwise>();
    }
    return typed;
  }();
  return handle;
}

at::Tensor pointwise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_pointwise()->redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), x, weight,
      bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, "none", Activations(), "");
}

bool serves(Candidate candidate, const at::Tensor& a, const at::Tensor& b) {
  if (candidate == Candidate::kAten || !on_host(a) || a.scalar_type() != b.scalar_type() ||
      a.numel() == 0 || b.numel() == 0) {
    return false;
  }
  const DType dtype = dtype_of(a);
  if (dtype != DType::kFloat32 && !shardbench::is_half_width(dtype)) return false;
  return available(candidate, dtype) && (candidate == Candidate::kWidened || b.is_contiguous());
}

/// Whether a call of one element goes through: LibTorch refuses oneDNN's kernels without some
/// instructions, which ones differs by version and dtype, so it is tried once.
template <typename Try>
bool runs(DType dtype, Try attempt) {
  const at::Tensor one = at::ones({1, 1}, at::TensorOptions().dtype(scalar_type(dtype)));
  try {
    attempt(one);
  } catch (const std::exception&) {  // of LibTorch, or of oneDNN
    return false;
  }
  return true;
}

/// `known(dtype)`, found once per dtype, and only for those that are asked for.
template <typename Known>
bool known_once(DType dtype, Known known) {
  if (dtype == DType::kBFloat16) {
    static const bool bf16 = known(dtype);
    return bf16;
  }
  if (dtype == DType::kFloat16) {
    static const bool fp16 = known(dtype);
    return fp16;
  }
  static const bool fp32 = known(dtype);
  return fp32;
}

bool linear_runs(DType dtype) {
  return known_once(dtype, [](DType d) {
    return linear_pointwise().has_value() &&
           runs(d, [](const at::Tensor& one) { pointwise(one, one, {}); });
  });
}

bool matmul_runs(DType dtype) {
  return known_once(dtype, [](DType d) {
    return at::hasMKLDNN() && &at::native::mkldnn_matmul != nullptr &&
           runs(d, [](const at::Tensor& one) {
             at::native::mkldnn_matmul(one, one, at::empty_like(one), 0.0f, 1.0f);
           });
  });
}

at::Tensor empty_product(const at::Tensor& a, std::int64_t width) {
  return at::empty({a.size(0), width}, a.options());
}

/// The widened candidate: products in fp32, a block of the weight at a time, so that no fp32 copy
/// of it is ever whole. Results are rounded once.
constexpr std::int64_t kWidenedElements = std::int64_t{1} << 20;

/// Calls f(first, count) for blocks of the rows of a weight [out, in].
template <typename F>
void for_weight_blocks(std::int64_t out, std::int64_t in, F f) {
  const std::int64_t block = std::max<std::int64_t>(1, kWidenedElements / in);
  for (std::int64_t first = 0; first < out; first += block) f(first, std::min(block, out - first));
}

at::Tensor widened_linear(const at::Tensor& rows, const at::Tensor& weight,
                          const at::Tensor& bias) {
  const at::Tensor wide = rows.to(at::kFloat);
  const at::Tensor y = empty_product(rows, weight.size(0));
  for_weight_blocks(weight.size(0), weight.size(1), [&](std::int64_t first, std::int64_t count) {
    at::Tensor part = at::mm(wide, weight.narrow(0, first, count).to(at::kFloat).t());
    if (bias.defined()) part.add_(bias.narrow(0, first, count));
    y.narrow(1, first, count).copy_(part);
  });
  return y;
}

at::Tensor widened_input_grad(const at::Tensor& rows, const at::Tensor& weight) {
  at::Tensor dx = at::zeros({rows.size(0), weight.size(1)}, rows.options().dtype(at::kFloat));
  for_weight_blocks(weight.size(0), weight.size(1), [&](std::int64_t first, std::int64_t count) {
    dx.addmm_(rows.narrow(1, first, count).to(at::kFloat),
              weight.narrow(0, first, count).to(at::kFloat));
  });
  return dx.to(rows.scalar_type());
}

void widened_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                         bool accumulate) {
  const at::Tensor wide = x.to(at::kFloat);
  for_weight_blocks(target.size(0), target.size(1), [&](std::int64_t first, std::int64_t count) {
    store(target.narrow(0, first, count),
          at::mm(grad.narrow(1, first, count).to(at::kFloat).t(), wide), accumulate);
  });
}

}  // namespace

bool available(Candidate candidate, DType dtype) {
  switch (candidate) {
    case Candidate::kAten:
      return true;
    case Candidate::kOneDnnLinear:
      return linear_runs(dtype);
    case Candidate::kOneDnnMatmul:
      return matmul_runs(dtype);
    case Candidate::kWidened:  // fp16 by rule, where LibTorch has nothing better
      return dtype == DType::kBFloat16 || (dtype == DType::kFloat16 && !matmul_runs(dtype));
    case Candidate::kOpenBlas:
      return dtype == DType::kFloat32 && openblas::available();
  }
  return false;
}

at::Tensor linear_by(Candidate candidate, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) {
  const at::Tensor rows = as_rows(x);
  at::Tensor y;
  if (!serves(candidate, rows, weight)) {
    y = bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
  } else if (candidate == Candidate::kWidened) {
    y = widened_linear(rows, weight, bias);
  } else if (candidate == Candidate::kOneDnnLinear) {
    y = pointwise(rows.contiguous(), weight, bias);
  } else if (candidate == Candidate::kOpenBlas) {
    y = empty_product(rows, weight.size(0));
    if (bias.defined()) y.copy_(bias.expand_as(y));
    openblas::matmul(rows.contiguous(), weight.t(), y, /*accumulate=*/bias.defined());
  } else {
    y = empty_product(rows, weight.size(0));
    at::native::mkldnn_matmul(rows.contiguous(), weight.t(), y, 0.0f, 1.0f);
    if (bias.defined()) y.add_(bias);
  }
  return y.view(with_last_dimension(x, weight.size(0)));
}

at::Tensor linear_input_grad_by(Candidate candidate, const at::Tensor& grad,
                                const at::Tensor& weight) {
  const at::Tensor rows = as_rows(grad);
  at::Tensor dx;
  if (!serves(candidate, rows, weight)) {
    dx = at::mm(rows, weight);
  } else if (candidate == Candidate::kWidened) {
    dx = widened_input_grad(rows, weight);
  } else if (candidate == Candidate::kOneDnnLinear) {
    dx = pointwise(rows.contiguous(), weight.t(), {});
  } else if (candidate == Candidate::kOpenBlas) {
    dx = empty_product(rows, weight.size(1));
    openblas::matmul(rows.contiguous(), weight, dx, /*accumulate=*/false);
  } else {
    dx = empty_product(rows, weight.size(1));
    at::native::mkldnn_matmul(rows.contiguous(), weight, dx, 0.0f, 1.0f);
  }
  return dx.view(with_last_dimension(grad, weight.size(1)));
}

void linear_weight_grad_by(Candidate candidate, const at::Tensor& grad, const at::Tensor& x,
                           const at::Tensor& target, bool accumulate) {
  at::Tensor out = target;  // a handle: the memory is the caller's
  const at::Tensor grad_rows = as_rows(grad);
  const at::Tensor x_rows = as_rows(x);
  const bool served = serves(candidate, grad_rows, target) && x_rows.numel() > 0;
  if (served && candidate == Candidate::kWidened) {
    widened_weight_grad(grad_rows, x_rows, target, accumulate);
  } else if (served && candidate == Candidate::kOpenBlas) {
    openblas::matmul(grad_rows.contiguous().t(), x_rows.contiguous(), out, accumulate);
  } else if (served && candidate == Candidate::kOneDnnMatmul) {
    at::native::mkldnn_matmul(grad_rows.contiguous().t(), x_rows.contiguous(), out,
                              accumulate ? 1.0f : 0.0f, 1.0f);
  } else if (accumulate) {
    at::addmm_out(out, out, grad_rows.t(), x_rows);
  } else {
    at::mm_out(out, grad_rows.t(), x_rows);
  }
}

TuneKey linear_key(Pass pass, const at::Tensor& rows, std::int64_t in, std::int64_t out, bool bias,
                   bool accumulate) {
  const std::int64_t width = rows.size(-1);
  return {pass, dtype_of(rows), bias, accumulate, width == 0 ? 0 : rows.numel() / width, in, out};
}

}  // namespace shardbench::ops

#include "common/ops/linear_candidates.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

#include "common/ops/shapes.h"

namespace at::native {
// result = beta result + alpha a b, by oneDNN in plain fp32, for strides of any matrix and its
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
  return candidate != Candidate::kAten && a.is_cpu() && a.scalar_type() == at::kFloat &&
         b.scalar_type() == at::kFloat && a.numel() > 0 && b.numel() > 0 && b.is_contiguous() &&
         available(candidate);
}

/// Whether oneDNN's matrix product runs on this CPU: LibTorch refuses it without some instructions,
/// which ones differs by version, so it is tried once.
bool matmul_runs() {
  static const bool runs = [] {
    if (!at::hasMKLDNN() || &at::native::mkldnn_matmul == nullptr) return false;
    const at::Tensor one = at::ones({1, 1}, at::TensorOptions().dtype(at::kFloat));
    const at::Tensor product = at::empty_like(one);
    try {
      at::native::mkldnn_matmul(one, one, product, 0.0f, 1.0f);
    } catch (const c10::Error&) {
      return false;
    }
    return true;
  }();
  return runs;
}

at::Tensor empty_product(const at::Tensor& a, std::int64_t width) {
  return at::empty({a.size(0), width}, a.options());
}

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    default:
      return DType::kFloat64;
  }
}

}  // namespace

bool available(Candidate candidate) {
  switch (candidate) {
    case Candidate::kAten:
      return true;
    case Candidate::kOneDnnLinear:
      return linear_pointwise().has_value();
    case Candidate::kOneDnnMatmul:
      return matmul_runs();
  }
  return false;
}

at::Tensor linear_by(Candidate candidate, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) {
  const at::Tensor rows = as_rows(x);
  at::Tensor y;
  if (!serves(candidate, rows, weight)) {
    y = bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
  } else if (candidate == Candidate::kOneDnnLinear) {
    y = pointwise(rows.contiguous(), weight, bias);
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
  } else if (candidate == Candidate::kOneDnnLinear) {
    dx = pointwise(rows.contiguous(), weight.t(), {});
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
  if (candidate == Candidate::kOneDnnMatmul && serves(candidate, grad_rows, target) &&
      x_rows.numel() > 0) {
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

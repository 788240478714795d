#include "common/modules/layers/functional.h"

#include <ATen/ATen.h>

#include <memory>

#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/attention.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/elementwise.h"

namespace shardbench::functional {

namespace {

using Tensors = std::vector<at::Tensor>;

/// Says that the tensor's memory has been overwritten, so that a graph that saved it is refused.
void overwritten(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  return run_op(
      {x}, {}, [&] { return as_activation(ops::gelu(x)); },
      [x = saved(x)](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::gelu_backward(grads[0], x)};
      });
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  const auto result = std::make_shared<ops::AttentionResult>();
  return run_op(
      {qkv}, {},
      [&] {
        ops::AttentionResult forward = ops::causal_attention(qkv, heads);
        *result = {saved(forward.out), as_activation(forward.logsumexp)};
        return as_activation(std::move(forward.out));
      },
      [qkv = saved(qkv), result, heads](const Tensors& grads,
                                        const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::causal_attention_backward(grads[0], qkv, *result, heads)};
      });
}

at::Tensor residual_add(const at::Tensor& x, const at::Tensor& branch) {
  return run_op(
      {x, branch}, {},
      [&] {
        overwritten(branch);
        return as_activation(ops::residual_add(x, branch));
      },
      [](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        return {needs[0] ? grads[0] : at::Tensor(), needs[1] ? grads[0] : at::Tensor()};
      });
}

at::Tensor add_to_each(const at::Tensor& x, const at::Tensor& rows) {
  return run_op(
      {x, rows}, {},
      [&] {
        overwritten(x);
        return as_activation(ops::add_to_each(x, rows));
      },
      [](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
        return {needs[0] ? grads[0] : at::Tensor(),
                needs[1] ? ops::add_to_each_rows_grad(grads[0]) : at::Tensor()};
      });
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return run_op(
      {logits}, {},
      [&] {
        overwritten(logits);
        as_activation(logits);
        return as_activation(ops::cross_entropy(logits, targets));
      },
      [buffer = saved(logits), targets](const Tensors& grads,
                                        const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::cross_entropy_backward(grads[0], buffer, targets)};
      });
}

}  // namespace shardbench::functional

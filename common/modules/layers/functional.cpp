#include "common/modules/layers/functional.h"

#include <ATen/ATen.h>

#include <memory>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/attention.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/elementwise.h"
#include "common/ops/rotary.h"
#include "common/ops/swiglu.h"

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

at::Tensor relu(const at::Tensor& x) {
  struct Kept {
    at::Tensor y;
    c10::VariableVersion version;  // of the memory, shared by all tensors over it
    std::uint32_t number = 0;
  };
  const auto kept = std::make_shared<Kept>();
  return run_op(
      {x}, {},
      [&] {
        overwritten(x);
        at::Tensor y = as_activation(ops::relu(x));
        const c10::VariableVersion& version = x.unsafeGetTensorImpl()->version_counter();
        y.unsafeGetTensorImpl()->set_version_counter(version);
        *kept = {saved(y), version, version.current_version()};
        return y;
      },
      [kept](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        SHARDBENCH_CHECK(kept->version.current_version() == kept->number,
                         "the output of relu was overwritten before its backward");
        return {ops::relu_backward(grads[0], kept->y)};
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

at::Tensor grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             std::int64_t heads, std::int64_t kv_heads) {
  const auto result = std::make_shared<ops::GroupedAttentionResult>();
  return run_op(
      {q, k, v}, {},
      [&] {
        *result = ops::grouped_attention(q, k, v, heads, kv_heads);
        for (const at::Tensor& part : result->logsumexp) as_activation(part);
        at::Tensor out = result->out;
        result->out = saved(out);
        return as_activation(std::move(out));
      },
      [q = saved(q), k = saved(k), v = saved(v), result, heads, kv_heads](
          const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !(needs[0] || needs[1] || needs[2])) return {};
        ops::AttentionGrads all =
            ops::grouped_attention_backward(grads[0], q, k, v, *result, heads, kv_heads);
        return {needs[0] ? all.q : at::Tensor(), needs[1] ? all.k : at::Tensor(),
                needs[2] ? all.v : at::Tensor()};
      });
}

at::Tensor rotary(const at::Tensor& x, const at::Tensor& table) {
  return run_op(
      {x}, {},
      [&] {
        overwritten(x);
        return as_activation(ops::rotary(x, table));
      },
      [table](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::rotary_backward(grads[0], table)};
      });
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return run_op(
      {gate, up}, {}, [&] { return as_activation(ops::swiglu(gate, up)); },
      [gate = saved(gate), up = saved(up)](const Tensors& grads,
                                           const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined()) return {};
        ops::SwigluGrads all = ops::swiglu_backward(grads[0], gate, up, needs[0], needs[1]);
        return {all.gate, all.up};
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
  const auto logsumexp = std::make_shared<at::Tensor>();
  return run_op(
      {logits}, {},
      [&] {
        overwritten(logits);
        as_activation(logits);
        ops::CrossEntropyResult result = ops::cross_entropy(logits, targets);
        if (result.logsumexp.defined()) *logsumexp = as_activation(std::move(result.logsumexp));
        return as_activation(std::move(result.loss));
      },
      [buffer = saved(logits), targets, logsumexp](const Tensors& grads,
                                                   const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::cross_entropy_backward(grads[0], buffer, targets, *logsumexp)};
      });
}

}  // namespace shardbench::functional

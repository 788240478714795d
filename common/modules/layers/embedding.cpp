#include "common/modules/layers/embedding.h"

#include <ATen/ATen.h>

#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/embedding.h"

namespace shardbench {

Embedding::Embedding(std::int64_t rows, std::int64_t width, Init init, bool by_token)
    : weight_(&add_parameter("weight", {rows, width}, init)) {
  if (by_token) weight_->set_by_token();
}

at::Tensor Embedding::forward(const Tensors& inputs) {
  const at::Tensor& indices = inputs[0];
  return run_op(
      {indices}, trainable({weight_}),
      [&] { return as_activation(ops::embedding(weight_->tensor(), indices)); },
      [weight = weight_, indices](const Tensors& grads, const std::vector<bool>&) -> Tensors {
        if (weight->takes_rows()) {
          const bool any = grads[0].defined();
          weight->add_gradient_rows(
              any ? indices : at::empty({0}, at::kLong),
              any ? grads[0] : at::empty({0, weight->row_elements()}, at::kFloat));
          return {at::Tensor()};
        }
        if (write_zero_if_undefined(grads[0], {weight})) return {at::Tensor()};
        write_gradient(weight, [&](const at::Tensor& target, bool accumulate) {
          ops::embedding_weight_grad(grads[0], indices, target, accumulate);
        });
        return {at::Tensor()};
      });
}

}  // namespace shardbench

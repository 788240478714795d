#include "common/modules/layers/embedding.h"

#include <ATen/ATen.h>

#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/embedding.h"

namespace shardbench {

Embedding::Embedding(std::int64_t rows, std::int64_t width, Init init)
    : weight_(&add_parameter("weight", {rows, width}, init)) {}

at::Tensor Embedding::forward(const Tensors& inputs) {
  const at::Tensor& indices = inputs[0];
  return run_op(
      {indices}, trainable({weight_}),
      [&] { return as_activation(ops::embedding(weight_->tensor(), indices)); },
      [weight = weight_, indices](const Tensors& grads, const std::vector<bool>&) -> Tensors {
        if (write_zero_if_undefined(grads[0], {weight})) return {at::Tensor()};
        write_gradient(weight, [&](const at::Tensor& target, bool accumulate) {
          ops::embedding_weight_grad(grads[0], indices, target, accumulate);
        });
        return {at::Tensor()};
      });
}

}  // namespace shardbench

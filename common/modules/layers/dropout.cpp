#include "common/modules/layers/dropout.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"
#include "common/ops/dropout.h"

namespace shardbench {

Dropout::Dropout(double p) : p_(p) {
  SHARDBENCH_CHECK(p >= 0 && p < 1, "dropout probability {}", p);
}

at::Tensor Dropout::forward(const Tensors& inputs) {
  const at::Tensor& x = inputs[0];
  const ops::ForwardContext context = ops::forward_context();
  if (p_ == 0 || !context.training) return x;
  const std::uint64_t id = ops::dropout_op_id(path());
  return run_op(
      {x}, {}, [&] { return as_activation(ops::dropout(x, p_, context, id)); },
      [context, id, p = p_](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::dropout(grads[0], p, context, id)};
      });
}

}  // namespace shardbench

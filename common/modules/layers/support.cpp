#include "common/modules/layers/support.h"

#include <ATen/ATen.h>

#include "common/memory/allocator.h"
#include "common/ops/store.h"

namespace shardbench {

std::vector<Parameter*> trainable(std::initializer_list<Parameter*> parameters) {
  std::vector<Parameter*> result;
  for (Parameter* p : parameters) {
    if (p != nullptr && p->requires_grad()) result.push_back(p);
  }
  return result;
}

at::Tensor as_activation(at::Tensor tensor) {
  memory::retag(tensor, memory::Category::kActivation);
  return tensor;
}

void write_gradient_from(Parameter* parameter, const at::Tensor& gradient) {
  write_gradient(parameter, [&](const at::Tensor& view, bool accumulate) {
    ops::store(view, gradient, accumulate);
  });
}

bool write_zero_if_undefined(const at::Tensor& output_grad,
                             std::initializer_list<Parameter*> parameters) {
  if (output_grad.defined()) return false;
  for (Parameter* p : parameters) {
    write_gradient(p, [](const at::Tensor& view, bool accumulate) {
      if (!accumulate) at::Tensor(view).zero_();
    });
  }
  return true;
}

}  // namespace shardbench

#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "common/modules/parameter.h"

namespace shardbench {

/// What layers share: the parameter protocol and the booking of memory.

/// Those of `parameters` (null: absent) that want a gradient: the list that run_op takes.
std::vector<Parameter*> trainable(std::initializer_list<Parameter*> parameters);

/// `tensor` without its graph, for a closure to keep. A closure must never hold the tensor itself:
/// an op's own output would then own the graph that owns it.
inline at::Tensor saved(const at::Tensor& tensor) { return tensor.detach(); }

/// Books the memory of `tensor` as activation and returns it.
at::Tensor as_activation(at::Tensor tensor);

/// Runs `write(view, accumulate)` on the gradient target of a trainable parameter and reports it
/// as written, which may start its reduction; does nothing for a null or frozen one.
template <typename Write>
void write_gradient(Parameter* parameter, Write&& write) {
  if (parameter == nullptr || !parameter->requires_grad()) return;
  const Parameter::Target target = parameter->gradient_target();
  std::forward<Write>(write)(target.view, target.accumulate);
  parameter->gradient_written();
}

/// Copies or adds a gradient that was computed elsewhere.
void write_gradient_from(Parameter* parameter, const at::Tensor& gradient);

/// For an output gradient that never arrived (it counts as zero): zeroes what has not been written
/// yet and reports all of them, so that no reduction waits for ever. Returns whether it did.
bool write_zero_if_undefined(const at::Tensor& output_grad,
                             std::initializer_list<Parameter*> parameters);

}  // namespace shardbench

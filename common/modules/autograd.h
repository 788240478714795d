#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace shardbench {

class Parameter;

/// Backward of one op: takes the gradients of the outputs (undefined: zero), writes parameter
/// gradients through Parameter::gradient_target, and returns one gradient per input tensor.
/// `needs_input_grad[i]` says whether input i's is wanted; an undefined tensor stands for none.
using BackwardFn = std::function<std::vector<at::Tensor>(
    const std::vector<at::Tensor>& grad_outputs, const std::vector<bool>& needs_input_grad)>;

/// The one adapter between stateless ops and autograd. Runs `forward` with autograd off, then, if
/// gradients are on and something needs one, links `backward` behind its result. `parameters` are
/// those that backward will write: each gets note_use(), and the graph is refused in backward if
/// their values have changed since. The closure (and what it saved) is freed after backward.
at::Tensor run_op(const std::vector<at::Tensor>& inputs, const std::vector<Parameter*>& parameters,
                  const std::function<at::Tensor()>& forward, BackwardFn backward);

/// Whether run_op would link a backward: decides what forward has to save.
bool needs_backward(const std::vector<at::Tensor>& inputs,
                    const std::vector<Parameter*>& parameters);

/// `tensor` as a new autograd object over the same memory; `on_backward` runs when its gradient
/// arrives, before it is passed on.
at::Tensor with_backward_callback(const at::Tensor& tensor, std::function<void()> on_backward);
/// The same for several tensors with one callback, when all their gradients are there. Tensors
/// that need no gradient pass through; returns whether any does.
bool with_joint_backward_callback(std::vector<at::Tensor>& tensors,
                                  std::function<void()> on_backward);

/// Runs `callback` when the engine is about to return from the backward that is under way.
void at_end_of_backward(std::function<void()> callback);

}  // namespace shardbench

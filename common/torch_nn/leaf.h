#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "common/modules/parameter.h"

namespace shardbench::torch_nn {

/// A tensor of the tree and the parameter it stands for. Autograd hands over a leaf's gradient once
/// per backward, whatever number of ops used it; a leaf of several forwards is complete when the
/// backward of each has come.
struct Leaf {
  at::Tensor tensor;
  Parameter* parameter = nullptr;
  int forwards = 0;  ///< whose graphs reach it and whose backward has not brought its gradient
  int arriving = 0;  ///< of these, how many the backward under way goes through

  /// Moves the gradient that has just been accumulated into the strategy's memory.
  void take_gradient();
};

/// All leaves of a tree.
class Leaves {
 public:
  Leaves() = default;
  Leaves(const Leaves&) = delete;
  Leaves& operator=(const Leaves&) = delete;

  /// Lets `tensor` share the parameter's memory and sends its gradients there.
  void add(const at::Tensor& tensor, Parameter& parameter);
  /// The parameter that a tensor stands for, or null.
  Parameter* parameter_of(const at::Tensor& tensor) const;
  const std::vector<std::unique_ptr<Leaf>>& all() const { return leaves_; }

  /// Notes which leaves the graph of a forward's output reaches; returns the output to go on with.
  at::Tensor note_uses(const at::Tensor& output);
  /// No gradient comes here any more.
  void remove_hooks();

 private:
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::unordered_map<const c10::TensorImpl*, Leaf*> by_tensor_;
};

}  // namespace shardbench::torch_nn

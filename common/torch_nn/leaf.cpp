#include "common/torch_nn/leaf.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>
#include <utility>

#include "common/core/error.h"
#include "common/modules/autograd.h"
#include "common/ops/store.h"

namespace shardbench::torch_nn {

namespace {

class TakeGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit TakeGradient(Leaf& leaf) : leaf_(leaf) {}
  void operator()(const at::Tensor&) override { leaf_.take_gradient(); }

 private:
  Leaf& leaf_;
};

}  // namespace

void Leaf::take_gradient() {
  SHARDBENCH_CHECK(!at::GradMode::is_enabled(),
                   "gradients of gradients are not supported: leave create_graph off");
  const at::Tensor gradient = std::exchange(tensor.mutable_grad(), at::Tensor());
  if (gradient.layout() != at::kStrided) {
    throw UserError::format(
        "the gradient of parameter {} is sparse; make its module with sparse(false)",
        parameter->name());
  }
  const Parameter::Target target = parameter->gradient_target();
  ops::store(target.view, gradient, target.accumulate);
  if (parameter->pending_uses() > 0) {
    forwards -= std::exchange(arriving, 0);
    if (forwards > 0) return;
  }
  parameter->gradient_written();
}

void Leaves::add(const at::Tensor& tensor, Parameter& parameter) {
  leaves_.push_back(std::make_unique<Leaf>(Leaf{tensor, &parameter}));
  Leaf& leaf = *leaves_.back();
  by_tensor_[tensor.unsafeGetTensorImpl()] = &leaf;
  parameter.lend_memory_to(tensor);
  if (!tensor.requires_grad()) return;
  leaf.tensor.mutable_grad().reset();
  torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<TakeGradient>(leaf));
}

Parameter* Leaves::parameter_of(const at::Tensor& tensor) const {
  const auto found = by_tensor_.find(tensor.unsafeGetTensorImpl());
  return found == by_tensor_.end() ? nullptr : found->second->parameter;
}

at::Tensor Leaves::note_uses(const at::Tensor& output) {
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad()) return output;
  std::vector<Leaf*> used;
  const auto start = output.grad_fn();
  std::vector<torch::autograd::Node*> open;
  if (start) open.push_back(&*start);
  std::unordered_set<torch::autograd::Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (const auto* end = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      const auto found = by_tensor_.find(end->variable.unsafeGetTensorImpl());
      if (found != by_tensor_.end()) used.push_back(found->second);
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.function && seen.insert(&*edge.function).second) open.push_back(&*edge.function);
    }
  }
  for (Leaf* leaf : used) {
    if (leaf->parameter->pending_uses() == 0) {  // the strategy has forgotten dropped graphs
      leaf->forwards = leaf->arriving = 0;
      leaf->parameter->note_use();
    }
    ++leaf->forwards;
  }
  return with_backward_callback(output, [used] {
    for (Leaf* leaf : used) ++leaf->arriving;
  });
}

void Leaves::remove_hooks() {
  for (const auto& leaf : leaves_) {
    // Also one that has been frozen since.
    if (torch::autograd::impl::post_acc_grad_hooks(leaf->tensor) != nullptr) {
      torch::autograd::impl::set_post_acc_grad_hooks(leaf->tensor, nullptr);
    }
  }
}

}  // namespace shardbench::torch_nn

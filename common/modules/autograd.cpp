#include "common/modules/autograd.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "common/core/error.h"
#include "common/modules/op_probe.h"
#include "common/modules/parameter.h"

namespace shardbench {

namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
// A shared_ptr or an intrusive_ptr, depending on the LibTorch version.
using NodePtr = std::remove_cvref_t<decltype(std::declval<torch::autograd::Edge>().function)>;

template <typename NodeType, typename... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return std::make_shared<NodeType>(std::forward<Args>(args)...);
  } else {
    return c10::make_intrusive<NodeType>(std::forward<Args>(args)...);
  }
}

/// Backward of one op.
class OpNode : public Node {
 public:
  OpNode(std::vector<Parameter*> parameters, BackwardFn backward)
      : parameters_(std::move(parameters)), backward_(std::move(backward)) {
    for (const Parameter* p : parameters_) versions_.push_back(p->version());
  }

  std::string name() const override { return "ShardbenchOp"; }

  void release_variables() override { backward_ = nullptr; }

 protected:
  variable_list apply(variable_list&& grads) override {
    SHARDBENCH_CHECK(!at::GradMode::is_enabled(),
                     "gradients of gradients are not supported: leave create_graph off");
    const BackwardFn backward = std::exchange(backward_, nullptr);
    SHARDBENCH_CHECK(backward != nullptr,
                     "backward runs a second time through a graph whose buffers are freed");
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      SHARDBENCH_CHECK(parameters_[i]->version() == versions_[i],
                       "parameter {} has changed since this graph's forward; run forward again",
                       parameters_[i]->name());
    }
    std::vector<bool> needs(num_outputs());
    for (std::size_t i = 0; i < needs.size(); ++i) needs[i] = task_should_compute_output(i);
    variable_list result = run_backward(backward, grads, needs);
    result.resize(num_outputs());
    return result;
  }

 private:
  variable_list run_backward(const BackwardFn& backward, const variable_list& grads,
                             const std::vector<bool>& needs) const {
    OpProbe* probe = op_probe();
    if (probe == nullptr) return backward(grads, needs);
    return probe->backward([&] {
      for (Parameter* p : parameters_) p->reset_gradient();  // each run writes anew
      return backward(grads, needs);
    });
  }

  std::vector<Parameter*> parameters_;
  std::vector<std::int64_t> versions_;
  BackwardFn backward_;
};

thread_local OpProbe* current_probe = nullptr;

/// Passes gradients on after a callback.
class CallbackNode : public Node {
 public:
  explicit CallbackNode(std::function<void()> callback) : callback_(std::move(callback)) {}
  std::string name() const override { return "ShardbenchUnitBoundary"; }

 protected:
  variable_list apply(variable_list&& grads) override {
    callback_();
    return std::move(grads);
  }

 private:
  std::function<void()> callback_;
};

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& t : tensors) {
    if (t.defined() && t.requires_grad()) return true;
  }
  return false;
}

at::Tensor alias_without_autograd(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor alias = at::alias(tensor);
  // One memory, one version: a write through either shows in what autograd has saved of the other.
  alias.unsafeGetTensorImpl()->set_version_counter(tensor.unsafeGetTensorImpl()->version_counter());
  return alias;
}

}  // namespace

OpProbe* op_probe() { return current_probe; }

ProbeScope::ProbeScope(OpProbe& probe) : before_(std::exchange(current_probe, &probe)) {}
ProbeScope::~ProbeScope() { current_probe = before_; }

bool needs_backward(const std::vector<at::Tensor>& inputs,
                    const std::vector<Parameter*>& parameters) {
  return at::GradMode::is_enabled() && (!parameters.empty() || any_requires_grad(inputs));
}

at::Tensor run_op(const std::vector<at::Tensor>& inputs, const std::vector<Parameter*>& parameters,
                  const std::function<at::Tensor()>& forward, BackwardFn backward) {
  const bool link = needs_backward(inputs, parameters);
  at::Tensor output;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    OpProbe* probe = op_probe();
    output = probe == nullptr ? forward() : probe->forward(forward);
  }
  if (!link) return output;
  auto node = make_node<OpNode>(parameters, std::move(backward));
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(output, node);
  for (Parameter* p : parameters) p->note_use();
  return output;
}

at::Tensor with_backward_callback(const at::Tensor& tensor, std::function<void()> on_backward) {
  std::vector<at::Tensor> tensors{tensor};
  with_joint_backward_callback(tensors, std::move(on_backward));
  return tensors[0];
}

bool with_joint_backward_callback(std::vector<at::Tensor>& tensors,
                                  std::function<void()> on_backward) {
  if (!at::GradMode::is_enabled() || !any_requires_grad(tensors)) return false;
  auto node = make_node<CallbackNode>(std::move(on_backward));
  variable_list linked;
  for (const at::Tensor& t : tensors) {
    if (t.defined() && t.requires_grad()) linked.push_back(t);
  }
  node->set_next_edges(torch::autograd::collect_next_edges(linked));
  for (at::Tensor& t : tensors) {
    if (!t.defined() || !t.requires_grad()) continue;
    t = alias_without_autograd(t);
    torch::autograd::set_history(t, node);
  }
  return true;
}

void at_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace shardbench

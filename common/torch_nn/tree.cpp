#include "common/torch_nn/tree.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>

#include <utility>

#include "common/core/error.h"

namespace shardbench::torch_nn {

namespace {

/// The tree whose forward runs on this thread; `call` looks its unit up here.
thread_local const TorchRoot* running = nullptr;

class Running {
 public:
  explicit Running(const TorchRoot* root) : outer_(std::exchange(running, root)) {}
  ~Running() { running = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const TorchRoot* outer_;
};

/// Stands for a named child inside a Sequential.
class SequentialChild : public torch::nn::Module {
 public:
  explicit SequentialChild(torch::nn::AnyModule inner) : inner_(std::move(inner)) {}
  at::Tensor forward(at::Tensor input) {
    return call_unit(*inner_.ptr(), {std::move(input)},
                     [this](const Tensors& x) { return inner_.forward<at::Tensor>(x[0]); });
  }

 private:
  torch::nn::AnyModule inner_;
};

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

void check_tensor(const std::string& what, const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
    throw UserError::format("{} {} is not a dense tensor on the CPU; move it with ->to(at::kCPU)",
                            what, name);
  }
  if (tensor.scalar_type() != at::kFloat) {
    throw UserError::format(
        "{} {} is {}; adapted modules train in fp32 only: convert it with ->to(at::kFloat)", what,
        name, at::toString(tensor.scalar_type()));
  }
}

}  // namespace

at::Tensor TorchUnit::run(Tensors inputs, const Forward& forward) {
  const Forward* outer = std::exchange(forward_, &forward);
  struct Restore {
    const Forward*& place;
    const Forward* value;
    ~Restore() { place = value; }
  } restore{forward_, outer};
  return call(std::move(inputs));
}

at::Tensor TorchUnit::forward(const Tensors& inputs) {
  SHARDBENCH_CHECK(forward_ != nullptr, "unit {} is called without a forward", path());
  return (*forward_)(inputs);
}

Parameter& TorchUnit::add(const std::string& name, const at::Tensor& like) {
  Parameter& parameter = add_parameter(name, like.sizes().vec(), {});
  parameter.set_requires_grad(like.requires_grad());
  parameter.give_values(like);
  return parameter;
}

void TorchUnit::add_existing_buffer(const std::string& name, const at::Tensor& tensor) {
  add_buffer(name, {0}, 0).tensor = tensor;
}

TorchRoot::TorchRoot(std::shared_ptr<torch::nn::Module> module, Forward forward,
                     const AdaptOptions& options)
    : module_(std::move(module)), root_forward_(std::move(forward)) {
  check_units(options);
  visit(*module_, {"", this, 0});
  for (const auto& [path, found] : named_) {
    if (!found) throw UserError::format("unit '{}' lies in a module that is used twice", path);
  }
}

void TorchRoot::check_units(const AdaptOptions& options) {
  const auto known = module_->named_modules("", /*include_self=*/false);
  for (const std::string& path : options.units) {
    if (!known.contains(path)) {
      std::string some;
      for (std::size_t i = 0; i < known.size() && i < 8; ++i) {
        some += (i == 0 ? "" : ", ") + known.keys()[i];
      }
      throw UserError::format("the module has no submodule '{}' to make a unit of; it has {}{}",
                              path, some.empty() ? "none" : some, known.size() > 8 ? ", ..." : "");
    }
    if (!named_.emplace(path, false).second) {
      throw UserError::format("unit '{}' is named twice", path);
    }
  }
  for (const auto& item : module_->named_parameters()) check_tensor("parameter", item.key(), *item);
  for (const auto& item : module_->named_buffers()) {
    if (item->defined() && item->is_floating_point()) check_tensor("buffer", item.key(), *item);
  }
}

void TorchRoot::visit(torch::nn::Module& module, const Place& place) {
  visited_[&module] = true;
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item->defined()) take_parameter(place, item.key(), *item);
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item->defined()) take_buffer(place, item.key(), *item);
  }
  for (const auto& item : module.named_children()) {
    if (*item) visit_child(module, item.key(), **item, place);
  }
}

void TorchRoot::visit_child(torch::nn::Module& parent, const std::string& name,
                            torch::nn::Module& child, const Place& place) {
  Place below{joined(place.path, name), place.unit, place.prefix};
  const auto named = named_.find(below.path);
  if (named != named_.end()) {
    if (visited_.contains(&child)) {
      throw UserError::format(
          "unit '{}' is a module that stands elsewhere in the tree, too: name "
          "the first place",
          below.path);
    }
    below.unit = &place.unit->add_unit(below.path.substr(place.prefix));
    below.prefix = below.path.size() + 1;
    units_[&child] = below.unit;
    named->second = true;
    bound_in_sequential(parent, child);
  }
  if (visited_.contains(&child)) {  // a module used in two places: its parameters are known
    for (const auto& item : child.named_parameters()) take_parameter(below, item.key(), *item);
    return;
  }
  visit(child, below);
}

void TorchRoot::take_parameter(const Place& place, const std::string& name,
                               const at::Tensor& tensor) {
  if (Parameter* known = leaves_.parameter_of(tensor)) {
    place.unit->share(*known);
    return;
  }
  const std::string path = joined(place.path, name);
  if (!tensor.is_leaf()) {
    throw UserError::format("parameter {} is computed from other tensors: adapt a tree of leaves",
                            path);
  }
  if (torch::autograd::impl::post_acc_grad_hooks(tensor) != nullptr) {
    throw UserError::format("parameter {} has a gradient hook: its module is adapted already",
                            path);
  }
  for (const auto& leaf : leaves_.all()) {
    if (tensor.numel() > 0 && leaf->parameter->given_values().is_alias_of(tensor)) {
      throw UserError::format(
          "parameters {} and {} overlap in memory: register one tensor twice, or give each its own",
          leaf->parameter->name(), path);
    }
  }
  leaves_.add(tensor, place.unit->add(path.substr(place.prefix), tensor));
}

void TorchRoot::take_buffer(const Place& place, const std::string& name, const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat) return;  // counters and masks: each rank's own
  if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
  place.unit->add_existing_buffer(joined(place.path, name).substr(place.prefix), tensor);
}

void TorchRoot::bound_in_sequential(torch::nn::Module& parent, const torch::nn::Module& child) {
  auto* sequential = parent.as<torch::nn::SequentialImpl>();
  if (sequential == nullptr) return;
  for (torch::nn::AnyModule& slot : *sequential) {
    if (slot.ptr().get() != &child) continue;
    boundaries_.push_back({&slot, slot});
    slot = torch::nn::AnyModule(std::make_shared<SequentialChild>(slot));
  }
}

TorchUnit* TorchRoot::unit_of(const torch::nn::Module& module) const {
  const auto found = units_.find(&module);
  return found == units_.end() ? nullptr : found->second;
}

at::Tensor TorchRoot::forward(const Tensors& inputs) {
  if (released_) throw UserError("the module was given back: adapt it again to train on");
  for (const auto& leaf : leaves_.all()) {
    if (leaf->tensor.requires_grad() == leaf->parameter->requires_grad()) continue;
    throw UserError::format(
        "parameter {} was frozen or unfrozen after the module was adapted: do it before",
        leaf->parameter->name());
  }
  const Running scope(this);
  return leaves_.note_uses(root_forward_(inputs));
}

void TorchRoot::release(const std::vector<at::Tensor>& values) {
  SHARDBENCH_CHECK(!released_, "the module was given back before");
  released_ = true;
  leaves_.remove_hooks();
  for (const auto& leaf : leaves_.all()) {
    const at::Tensor& value = values[static_cast<std::size_t>(leaf->parameter->index())];
    if (!value.defined()) continue;
    leaf->tensor.set_data(value);
    leaf->tensor.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
  }
  for (Boundary& boundary : boundaries_) *boundary.slot = std::move(boundary.original);
  boundaries_.clear();
}

TorchRoot::~TorchRoot() {
  for (const auto& leaf : leaves_.all()) leaf->parameter->unbind();  // its memory may go before
  if (released_) return;
  leaves_.remove_hooks();
  for (Boundary& boundary : boundaries_) *boundary.slot = std::move(boundary.original);
}

at::Tensor call_unit(const torch::nn::Module& module, Tensors inputs, const Forward& forward) {
  TorchUnit* unit = running == nullptr ? nullptr : running->unit_of(module);
  return unit == nullptr ? forward(inputs) : unit->run(std::move(inputs), forward);
}

}  // namespace shardbench::torch_nn

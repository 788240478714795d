#include "common/modules/module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <unordered_map>

#include "common/core/error.h"
#include "common/modules/autograd.h"

namespace shardbench {

Parameter& Module::add_parameter(std::string name, std::vector<std::int64_t> dims, Init init) {
  parameters_.push_back(std::make_unique<Parameter>(std::move(name), std::move(dims), init));
  return *parameters_.back();
}

ModuleBuffer& Module::add_buffer(std::string name, std::vector<std::int64_t> dims, float value) {
  buffers_.push_back(std::make_unique<ModuleBuffer>(
      ModuleBuffer{std::move(name), at::full(dims, value, at::kFloat)}));
  return *buffers_.back();
}

at::Tensor Module::call(Tensors inputs) {
  if (runtime_ == nullptr || units_.empty()) return forward(inputs);
  Hooks& hooks = *runtime_->hooks;
  for (Unit* unit : units_) hooks.before_forward(*unit);
  const bool inputs_need_grad = with_joint_backward_callback(inputs, [this] {
    SHARDBENCH_CHECK(runtime_ != nullptr, "backward through {} after its strategy was detached",
                     path_);
    for (auto it = units_.rbegin(); it != units_.rend(); ++it) {
      runtime_->hooks->after_backward(**it);
    }
  });
  at::Tensor output = forward(inputs);
  for (auto it = units_.rbegin(); it != units_.rend(); ++it) hooks.after_forward(**it);
  return with_backward_callback(
      output, [this, inputs_need_grad] { enter_backward(units_, inputs_need_grad); });
}

void Module::enter_backward(const std::vector<Unit*>& units, bool inputs_need_grad) {
  HookRuntime* runtime = runtime_;
  SHARDBENCH_CHECK(runtime != nullptr, "backward through {} after its strategy was detached",
                   path_);
  const int id = torch::autograd::get_current_graph_task_id();
  if (runtime->backward_id != id) {
    runtime->backward_id = id;
    runtime->open.clear();
    at_end_of_backward([runtime] {
      std::vector<Unit*> open = std::move(runtime->open);
      runtime->open.clear();
      for (auto it = open.rbegin(); it != open.rend(); ++it) runtime->hooks->after_backward(**it);
      runtime->hooks->end_of_backward();
    });
  }
  for (Unit* unit : units) {
    runtime->hooks->before_backward(*unit);
    if (!inputs_need_grad) runtime->open.push_back(unit);
  }
}

Model::Model(std::string name, std::unique_ptr<Module> root) : root_(std::move(root)) {
  shape_.name = std::move(name);
  visit(*root_, -1);
  std::unordered_map<const Parameter*, int> index_of;
  for (Parameter* p : parameters_) index_of[p] = p->index();
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    for (const Parameter* shared : modules_[m]->shared_parameters()) {
      const auto found = index_of.find(shared);
      SHARDBENCH_CHECK(found != index_of.end(), "module {} shares parameter {} of another model",
                       modules_[m]->path(), shared->name());
      shape_.parameters[static_cast<std::size_t>(found->second)].also_used_by.push_back(
          static_cast<int>(m));
    }
  }
}

void Model::visit(Module& module, int parent) {
  const int index = static_cast<int>(modules_.size());
  modules_.push_back(&module);
  shape_.modules.push_back({module.path_, std::string(module.class_name()), parent});
  const std::string prefix = module.path_.empty() ? "" : module.path_ + ".";
  for (const auto& parameter : module.parameters_) {
    parameter->set_full_name(prefix + parameter->name());
    parameter->set_index(static_cast<int>(parameters_.size()));
    parameters_.push_back(parameter.get());
    shape_.parameters.push_back({parameter->name(),
                                 parameter->dims(),
                                 index,
                                 parameter->requires_grad(),
                                 parameter->decay(),
                                 {},
                                 parameter->by_token()});
  }
  for (const auto& buffer : module.buffers_) {
    buffer->name = prefix + buffer->name;
    buffers_.push_back(buffer.get());
  }
  for (const auto& child : module.children_) {
    child->path_ = prefix + child->name_;
    visit(*child, index);
  }
}

Parameter& Model::parameter(const std::string& name) const {
  for (Parameter* p : parameters_) {
    if (p->name() == name) return *p;
  }
  std::string known;
  for (std::size_t i = 0; i < parameters_.size() && i < 8; ++i) {
    known += (i == 0 ? "" : ", ") + parameters_[i]->name();
  }
  throw UserError::format("model {} has no parameter '{}'; it has {}{}", shape_.name, name, known,
                          parameters_.size() > 8 ? ", ..." : "");
}

void Model::set_requires_grad(Parameter& parameter, bool on) {
  SHARDBENCH_CHECK(runtime_.hooks == nullptr, "freeze {} before a strategy is attached",
                   parameter.name());
  parameter.set_requires_grad(on);
  shape_.parameters[static_cast<std::size_t>(parameter.index())].requires_grad = on;
}

void Model::set_device(at::Device device) {
  SHARDBENCH_CHECK(runtime_.hooks == nullptr, "model {} changes its device under a strategy",
                   shape_.name);
  device_ = device;
  for (Parameter* p : parameters_) p->set_device(device);
  for (ModuleBuffer* buffer : buffers_) buffer->tensor = buffer->tensor.to(device);
}

void Model::attach(Hooks& hooks, const sharding::UnitPolicy& policy) {
  SHARDBENCH_CHECK(runtime_.hooks == nullptr, "model {} already has a strategy", shape_.name);
  units_.clear();
  for (sharding::UnitShape& planned : sharding::plan_units(shape_, policy)) {
    auto unit = std::make_unique<Unit>();
    unit->index = static_cast<int>(units_.size());
    unit->name = std::move(planned.name);
    unit->is_root = planned.anchor == 0;
    unit->anchor = modules_[static_cast<std::size_t>(planned.anchor)];
    for (int p : planned.parameters) {
      Parameter* parameter = parameters_[static_cast<std::size_t>(p)];
      parameter->set_unit(unit.get());
      unit->parameters.push_back(parameter);
    }
    unit->anchor->units_.push_back(unit.get());
    units_.push_back(std::move(unit));
  }
  runtime_ = HookRuntime{&hooks, -1, {}};
  for (Module* m : modules_) m->runtime_ = &runtime_;
  for (Parameter* p : parameters_) p->set_hooks(&hooks);
}

void Model::read_parameters(const std::function<void(const Parameter&, const at::Tensor&)>& read) {
  SHARDBENCH_CHECK(runtime_.hooks != nullptr, "model {} has no strategy attached", shape_.name);
  const at::NoGradGuard no_grad;  // so that every unit is resharded when it is left
  for (const auto& unit : units_) {
    runtime_.hooks->before_forward(*unit);
    for (const Parameter* p : unit->parameters) read(*p, p->tensor());
    runtime_.hooks->after_forward(*unit);
  }
}

void Model::detach() {
  for (Module* m : modules_) {
    m->runtime_ = nullptr;
    m->units_.clear();
  }
  for (Parameter* p : parameters_) {
    p->unbind();
    p->set_dtype(DType::kFloat32);
    p->set_hooks(nullptr);
    p->set_unit(nullptr);
    p->forget_uses();
    p->reset_gradient();
  }
  units_.clear();
  runtime_ = HookRuntime{};
}

}  // namespace shardbench

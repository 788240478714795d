#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/modules/hooks.h"
#include "common/modules/parameter.h"
#include "common/modules/unit.h"
#include "common/sharding/model_shape.h"
#include "common/sharding/unit_plan.h"

namespace shardbench {

using Tensors = std::vector<at::Tensor>;

/// A tensor that a module keeps beside its parameters and that no gradient reaches, such as running
/// statistics. Whole on every rank under every strategy. While training, each rank's forward
/// changes its own; before an evaluation and when training ends, all ranks take rank 0's.
struct ModuleBuffer {
  std::string name;   ///< full name once the model is built: "stages.0.norm.running_mean"
  at::Tensor tensor;  ///< fp32, the same object for life unless Model::set_device moves it
};

/// What the modules of one attached model share: the strategy, and the units whose after_backward
/// has to wait for the end of backward because their inputs need no gradient.
struct HookRuntime {
  Hooks* hooks = nullptr;
  int backward_id = -1;  ///< autograd's id of the backward that `open` belongs to
  std::vector<Unit*> open;
};

/// Base of everything with parameters. Calling a module runs its forward between the hooks of the
/// units that are anchored at it, in forward and, through autograd, in backward.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// The name that `--units class:NAME` matches.
  virtual std::string_view class_name() const = 0;

  /// Runs forward with hooks. The inputs are passed on as given.
  template <typename... Inputs>
  requires(std::convertible_to<Inputs, at::Tensor>&&...) at::Tensor operator()(Inputs&&... inputs) {
    return call({at::Tensor(std::forward<Inputs>(inputs))...});
  }
  at::Tensor call(Tensors inputs);  ///< the same for a list

  const std::string& path() const { return path_; }
  const std::vector<std::unique_ptr<Module>>& children() const { return children_; }
  const std::vector<std::unique_ptr<Parameter>>& own_parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<ModuleBuffer>>& own_buffers() const { return buffers_; }
  /// Parameters of other modules that this one uses (tied weights).
  const std::vector<Parameter*>& shared_parameters() const { return shared_; }

 protected:
  Module() = default;

  /// What the module computes; calls children with operator().
  virtual at::Tensor forward(const Tensors& inputs) = 0;

  /// Makes an M from `args` and owns it; `name` is its part of the path. Only while this module is
  /// being constructed: a Model numbers what is there when it takes the tree.
  template <typename M, typename... Args>
  M& add_child(std::string name, Args&&... args) {
    auto child = std::make_unique<M>(std::forward<Args>(args)...);
    M& reference = *child;
    reference.name_ = std::move(name);
    children_.push_back(std::move(child));
    return reference;
  }
  /// Registers a parameter; `decay` is on for two and more dimensions unless said otherwise.
  Parameter& add_parameter(std::string name, std::vector<std::int64_t> dims, Init init);
  /// Registers a buffer; every element starts at `value`.
  ModuleBuffer& add_buffer(std::string name, std::vector<std::int64_t> dims, float value);
  /// Declares that this module uses a parameter that another one registered.
  void share_parameter(Parameter& parameter) { shared_.push_back(&parameter); }

 private:
  friend class Model;
  std::string name_;
  std::string path_;
  std::vector<std::unique_ptr<Module>> children_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> shared_;
  std::vector<std::unique_ptr<ModuleBuffer>> buffers_;
  void enter_backward(const std::vector<Unit*>& units, bool inputs_need_grad);
  HookRuntime* runtime_ = nullptr;  ///< set while a strategy is attached
  std::vector<Unit*> units_;        ///< units anchored here
};

/// A module tree with names, its shape, its units, and the strategy attached to it. Owns all.
class Model {
 public:
  /// Takes the tree, gives every module its path and every parameter its full name and index.
  Model(std::string name, std::unique_ptr<Module> root);

  const std::string& name() const { return shape_.name; }
  Module& root() { return *root_; }
  /// Pre-order; index 0 is the root.
  const std::vector<Module*>& modules() const { return modules_; }
  /// Canonical order.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// Of all modules, pre-order.
  const std::vector<ModuleBuffer*>& buffers() const { return buffers_; }
  /// By full name; throws UserError naming the nearest ones.
  Parameter& parameter(const std::string& name) const;
  const sharding::ModelShape& shape() const { return shape_; }

  /// Freezes or unfreezes a parameter; only before attach.
  void set_requires_grad(Parameter& parameter, bool on);

  /// Where its parameters, buffers and gradients lie from now on, and where its inputs have to;
  /// only before attach.
  void set_device(at::Device device);
  at::Device device() const { return device_; }

  /// Cuts the model into units and sends all hook calls to `hooks` (not owned) from now on.
  void attach(Hooks& hooks, const sharding::UnitPolicy& policy);
  /// Takes hooks, units and every parameter's memory away; graphs made before are dead.
  void detach();
  /// Hands every parameter to `read`, unit by unit: `full` is its whole value, readable during the
  /// call only. With a strategy that shards, no more than two units are unsharded at once.
  /// Collective: every rank calls it at the same point, between steps. A strategy must be attached.
  void read_parameters(
      const std::function<void(const Parameter& parameter, const at::Tensor& full)>& read);
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }

  /// Runs the root's forward with hooks.
  template <typename... Inputs>
  at::Tensor operator()(Inputs&&... inputs) {
    return (*root_)(std::forward<Inputs>(inputs)...);
  }

 private:
  void visit(Module& module, int parent);
  std::unique_ptr<Module> root_;
  std::vector<Module*> modules_;
  std::vector<Parameter*> parameters_;
  std::vector<ModuleBuffer*> buffers_;
  sharding::ModelShape shape_;
  at::Device device_ = at::kCPU;
  std::vector<std::unique_ptr<Unit>> units_;
  HookRuntime runtime_;
};

}  // namespace shardbench

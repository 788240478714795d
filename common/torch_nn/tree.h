#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/torch_nn/adapter.h"
#include "common/torch_nn/leaf.h"

namespace shardbench::torch_nn {

/// A named unit of an adapted tree, or its root. Runs whatever forward it is called with.
class TorchUnit : public Module {
 public:
  std::string_view class_name() const override { return "TorchBlock"; }

  /// Runs `forward` between the hooks of this unit.
  at::Tensor run(Tensors inputs, const Forward& forward);

  TorchUnit& add_unit(const std::string& name) { return add_child<TorchUnit>(name); }
  Parameter& add(const std::string& name, const at::Tensor& like);
  void add_existing_buffer(const std::string& name, const at::Tensor& tensor);
  void share(Parameter& parameter) { share_parameter(parameter); }

 protected:
  at::Tensor forward(const Tensors& inputs) override;

 private:
  const Forward* forward_ = nullptr;  ///< of the call that is about to start
};

/// The root of an adapted tree: maps the tree to parameters, buffers and units, and takes all of
/// that back.
class TorchRoot : public TorchUnit {
 public:
  TorchRoot(std::shared_ptr<torch::nn::Module> module, Forward forward,
            const AdaptOptions& options);
  ~TorchRoot() override;
  std::string_view class_name() const override { return "TorchRoot"; }

  /// Null if the module is no unit.
  TorchUnit* unit_of(const torch::nn::Module& module) const;
  /// After this the tree has nothing of ours. `values` by parameter index; an undefined one leaves
  /// its tensor unusable.
  void release(const std::vector<at::Tensor>& values);

 protected:
  at::Tensor forward(const Tensors& inputs) override;

 private:
  struct Place {  ///< where a module of the tree stands
    std::string path;
    TorchUnit* unit;
    std::size_t prefix;  ///< length of the unit's part of the path, dot included
  };
  struct Boundary {  ///< a child of a Sequential that was replaced
    torch::nn::AnyModule* slot;
    torch::nn::AnyModule original;
  };
  void check_units(const AdaptOptions& options);
  void visit(torch::nn::Module& module, const Place& place);
  void visit_child(torch::nn::Module& parent, const std::string& name, torch::nn::Module& child,
                   const Place& place);
  void take_parameter(const Place& place, const std::string& name, const at::Tensor& tensor);
  void take_buffer(const Place& place, const std::string& name, const at::Tensor& tensor);
  void bound_in_sequential(torch::nn::Module& parent, const torch::nn::Module& child);

  std::shared_ptr<torch::nn::Module> module_;
  Forward root_forward_;
  std::unordered_map<std::string, bool> named_;  ///< unit paths; whether found
  std::unordered_map<const torch::nn::Module*, TorchUnit*> units_;
  std::unordered_map<const torch::nn::Module*, bool> visited_;
  Leaves leaves_;
  std::vector<Boundary> boundaries_;
  bool released_ = false;
};

}  // namespace shardbench::torch_nn

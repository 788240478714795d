#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <string>
#include <vector>

#include "common/modules/hooks.h"
#include "common/modules/init.h"
#include "common/modules/module.h"

namespace shardbench::testing {

/// The simplest strategy: one process, every parameter whole, with a gradient of its own. Binds
/// memory to a model's parameters, draws their initial values and records the hook calls. Detach
/// (destroy it) before the model goes.
class PlainHooks : public Hooks {
 public:
  explicit PlainHooks(Model& model, std::uint64_t seed = 1, const std::string& units = "whole")
      : model_(model) {
    for (Parameter* p : model.parameters()) {
      values_.push_back(at::empty(p->dims(), at::kFloat));
      gradients_.push_back(at::empty(p->dims(), at::kFloat));
      float* value = values_.back().mutable_data_ptr<float>();
      initialize(*p, seed, 0, p->numel(), value);
      p->bind(value);
    }
    ready_.assign(values_.size(), 0);
    model.attach(*this, sharding::UnitPolicy::parse(units));
    forget_gradients();
  }
  ~PlainHooks() override {
    model_.detach();
    for (Parameter* p : model_.parameters()) p->unbind();
  }

  at::Tensor& value(const std::string& name) { return values_[index(name)]; }
  at::Tensor& gradient(const std::string& name) { return gradients_[index(name)]; }
  /// How often gradient_ready was called.
  int ready(const std::string& name) const { return ready_[index(name)]; }
  /// "before_forward h.0", ... in call order.
  const std::vector<std::string>& events() const { return events_; }

  /// As after a reduction: the next write overwrites. The old values become NaN, so that one that
  /// is added to, or read, shows.
  void forget_gradients() {
    for (Parameter* p : model_.parameters()) p->reset_gradient();
    for (at::Tensor& g : gradients_) g.fill_(std::numeric_limits<double>::quiet_NaN());
    ready_.assign(ready_.size(), 0);
    events_.clear();
  }
  /// Replaces initial values by larger random ones, biases and norms included, so that no gradient
  /// is small or hidden by a zero.
  void randomize(double stddev) {
    for (at::Tensor& v : values_) v.normal_(0, stddev);
  }

  void before_forward(Unit& unit) override { note("before_forward", unit); }
  void after_forward(Unit& unit) override { note("after_forward", unit); }
  void before_backward(Unit& unit) override { note("before_backward", unit); }
  void after_backward(Unit& unit) override { note("after_backward", unit); }
  void end_of_backward() override { events_.push_back("end_of_backward"); }
  at::Tensor gradient_target(Parameter& parameter) override {
    return gradients_[static_cast<std::size_t>(parameter.index())];
  }
  void gradient_ready(Parameter& parameter) override {
    ++ready_[static_cast<std::size_t>(parameter.index())];
  }

 private:
  std::size_t index(const std::string& name) const {
    return static_cast<std::size_t>(model_.parameter(name).index());
  }
  void note(const char* what, const Unit& unit) {
    events_.push_back(std::string(what) + " " + unit.name);
  }

  Model& model_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> gradients_;
  std::vector<int> ready_;
  std::vector<std::string> events_;
};

}  // namespace shardbench::testing

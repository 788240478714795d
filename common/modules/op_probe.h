#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace shardbench {

/// Runs the ops of a thread in place of run_op, to measure them one by one: it may run one several
/// times (values are then no longer those of the model: ops that consume their input do so again).
class OpProbe {
 public:
  using Forward = std::function<at::Tensor()>;
  using Backward = std::function<std::vector<at::Tensor>()>;
  virtual ~OpProbe() = default;
  virtual at::Tensor forward(const Forward& run) = 0;
  virtual std::vector<at::Tensor> backward(const Backward& run) = 0;
};

/// The calling thread's probe, null unless a ProbeScope lives.
OpProbe* op_probe();

class ProbeScope {
 public:
  explicit ProbeScope(OpProbe& probe);
  ~ProbeScope();
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  OpProbe* before_;
};

}  // namespace shardbench

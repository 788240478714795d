#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench {

class Parameter;
struct Unit;

/// The seam between modules and strategies: modules call these, a strategy overrides them.
/// Always called on the thread that runs forward or backward; calls for one unit are nested like
/// the module calls they stand for (a unit may be entered several times per step).
class Hooks {
 public:
  virtual ~Hooks() = default;

  /// Entering the unit: its parameters must be usable on return.
  virtual void before_forward(Unit& unit) = 0;
  /// Leaving it: the outputs exist.
  virtual void after_forward(Unit& unit) = 0;
  /// The gradient of the unit's output has arrived: its parameters must be usable on return.
  virtual void before_backward(Unit& unit) = 0;
  /// A view of the parameter's full shape where an op writes (or, after the first write since the
  /// last reduction, adds) the gradient. Lives until gradient_ready or after_backward return.
  virtual at::Tensor gradient_target(Parameter& parameter) = 0;
  /// Whether gradients of this table arrive as rows, by add_gradient_rows.
  virtual bool takes_rows(const Parameter&) const { return false; }
  /// Row i of `grad` [..., width] belongs to row indices[i] of the table's gradient.
  virtual void add_gradient_rows(Parameter&, const at::Tensor& /*indices*/,
                                 const at::Tensor& /*grad*/) {}
  /// Every use of the parameter in the forwards so far has written its gradient.
  virtual void gradient_ready(Parameter& parameter) = 0;
  /// The gradient of the unit's input has been computed (or is not needed).
  virtual void after_backward(Unit& unit) = 0;
  /// The autograd engine is about to return from backward.
  virtual void end_of_backward() = 0;
};

}  // namespace shardbench

#pragma once

#include <string>
#include <vector>

#include "common/sharding/model_shape.h"

namespace shardbench::sharding {

/// How parameters are grouped into units. Parsed from `--units`.
struct UnitPolicy {
  enum class Kind { kBlock, kTensor, kWhole, kSize, kClass };
  Kind kind = Kind::kBlock;
  std::int64_t min_parameters = 0;  ///< kSize: a module becomes a unit at this many elements
  std::string class_name;           ///< kClass

  /// "block", "tensor", "whole", "size:N" (N may end in k or M, elements), "class:NAME". Throws
  /// UserError naming the valid forms.
  static UnitPolicy parse(const std::string& text);
  std::string to_string() const;
};

/// One unit: parameters unsharded, resharded and reduced together. It is entered when the forward
/// of its anchor module is called.
struct UnitShape {
  std::string name;             ///< path of its anchor, "root", or a parameter's name (kTensor)
  int anchor = 0;               ///< index of the module whose forward enters the unit
  std::vector<int> parameters;  ///< indices into ModelShape::parameters, canonical order
};

/// Units in the order in which their anchors stand in the model (pre-order), the root unit first;
/// a unit without parameters is left out.
///
/// A module that the policy selects becomes a unit with all parameters below it that no nested
/// unit takes; the rest is the root unit. `block`: modules whose class name ends in "Block", or the
/// direct children of the root in a model that has none. `size:N`: bottom-up, a module whose
/// parameters not yet taken reach N (as size-based wrapping does in FSDP). A tied parameter whose
/// users fall into different units moves to the unit of their lowest common ancestor. Throws
/// UserError when a class matches nothing, naming the classes the model has.
std::vector<UnitShape> plan_units(const ModelShape& model, const UnitPolicy& policy);

/// Whether a unit's backward reads its values: not where all of them are tables that are looked up.
bool is_read_in_backward(const ModelShape& model, const std::vector<int>& parameters);

}  // namespace shardbench::sharding

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardbench::sharding {

/// One parameter of a model, by shape only.
struct ParameterShape {
  std::string name;                ///< path of its module and its own name: "h.0.attn.qkv.weight"
  std::vector<std::int64_t> dims;  ///< empty: a 0-dim scalar, sharded as one row of one element
  int module = 0;                  ///< index of the module that registered it
  bool requires_grad = true;
  bool decay = true;              ///< weight decay applies (matrices; not biases and norms)
  std::vector<int> also_used_by;  ///< further modules that use it (tied weights)
  bool by_token = false;          ///< a table of which every token looks up a row

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t d : dims) n *= d;
    return n;
  }
  /// Whether nothing else is done with it than looking rows up, so that backward needs no value.
  bool is_looked_up_only() const { return by_token && also_used_by.empty(); }
  /// Whether its gradient may be kept as the rows that were looked up.
  bool has_row_gradient() const { return is_looked_up_only() && requires_grad; }
  std::int64_t rows() const { return dims.empty() ? 1 : dims[0]; }
  std::int64_t row_elements() const { return rows() == 0 ? 0 : numel() / rows(); }
};

/// One module; index 0 is the root, children follow their parent (pre-order).
struct ModuleShape {
  std::string path;        ///< "" for the root, "h.0.attn" below
  std::string class_name;  ///< "TransformerBlock", "Linear", ...
  int parent = -1;
};

/// All that sharding, formulas and the planner need of a model. Torch-free.
struct ModelShape {
  std::string name;
  std::vector<ModuleShape> modules;
  std::vector<ParameterShape> parameters;  ///< canonical order: registration, pre-order

  /// Elements of all parameters; a tied weight counts once.
  std::int64_t parameter_count() const {
    std::int64_t n = 0;
    for (const ParameterShape& p : parameters) n += p.numel();
    return n;
  }
};

}  // namespace shardbench::sharding

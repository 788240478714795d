#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/dtype.h"
#include "common/modules/hooks.h"

namespace shardbench {

/// How a parameter starts; any rank can make any elements (see init.h).
struct Init {
  enum class Kind { kConstant, kNormal, kUniform, kGiven };  ///< kGiven: see give_values
  Kind kind = Kind::kConstant;
  double scale = 0;  ///< the constant, the standard deviation, or the bound of (-b, b)

  static Init constant(double value) { return {Kind::kConstant, value}; }
  static Init normal(double stddev) { return {Kind::kNormal, stddev}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
};

/// One named weight, the same object under every strategy. Its full tensor is one object for
/// life; strategies bind memory to it (unshard) and take it away (reshard). It owns no memory.
class Parameter {
 public:
  /// `dims` may be empty (one element). The full tensor has no memory yet.
  Parameter(std::string name, std::vector<std::int64_t> dims, Init init);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  const Init& init() const { return init_; }
  std::int64_t numel() const { return numel_; }
  std::int64_t rows() const { return dims_.empty() ? 1 : dims_[0]; }
  std::int64_t row_elements() const { return rows() == 0 ? 0 : numel_ / rows(); }
  /// Set once, when the model is built: the path of its module and its own name.
  void set_full_name(std::string name);
  /// Position in the model's canonical order; set when the model is built.
  int index() const { return index_; }
  void set_index(int index) { index_ = index; }
  Unit* unit() const { return unit_; }
  void set_unit(Unit* unit) { unit_ = unit; }
  bool requires_grad() const { return requires_grad_; }
  void set_requires_grad(bool on) { requires_grad_ = on; }
  bool decay() const { return decay_; }
  void set_decay(bool on) { decay_ = on; }
  /// Whether it is a table of which every token looks up a row.
  bool by_token() const { return by_token_; }
  void set_by_token() { by_token_ = true; }

  // ---- values from elsewhere, for parameters that stand for tensors of another library ----
  /// Starts from `values` (fp32, CPU, the parameter's shape) instead of drawn ones. They are held,
  /// not copied, until a strategy is attached: that takes what its rank keeps and drops them.
  void give_values(const at::Tensor& values);
  /// The given values; undefined where there are none or they were dropped.
  const at::Tensor& given_values() const { return given_; }
  void drop_given_values() { given_.reset(); }
  /// Makes `tensor` (fp32, CPU, the same shape) stand for the full tensor: from now on both share
  /// one memory and one version, so unshard and reshard reach it and a use while resharded is the
  /// same named error. What it held before is let go. Gradients of it are the caller's affair.
  void lend_memory_to(const at::Tensor& tensor);

  // ---- reading, by ops ----
  /// The full tensor for explicit ops (no autograd). Throws InvariantError naming the parameter
  /// and its unit while it is resharded.
  const at::Tensor& tensor() const;
  /// The full tensor as an autograd leaf's stand-in, for a layer written in plain ATen calls: its
  /// gradient arrives in gradient_target by itself.
  at::Tensor tracked();
  /// Whether the full tensor has memory now.
  bool bound() const { return bound_; }

  // ---- memory, by strategies ----
  /// Makes the full tensor one of fp32, bf16 or fp16 (it starts as fp32). Only while it has no
  /// memory. Throws UserError for a parameter that lends its memory to a tensor of fp32.
  void set_dtype(DType dtype);
  DType dtype() const { return dtype_; }
  /// Where the full tensor lies (the CPU, unless said otherwise). Only while it has no memory.
  /// Throws UserError for a parameter that lends its memory to a tensor of the CPU.
  void set_device(at::Device device);
  at::Device device() const { return full_.device(); }
  /// Gives the full tensor `numel` elements of its dtype at `data` (64-byte aligned, the caller's
  /// memory on the parameter's device).
  void bind(void* data);
  /// Takes the memory away: any later use is a named error until the next bind.
  void unbind();
  /// The values changed in place: graphs built before are refused in backward.
  void values_changed();
  std::int64_t version() const { return version_; }

  // ---- gradients: the protocol between ops and strategies ----
  void set_hooks(Hooks* hooks) { hooks_ = hooks; }
  /// An op's forward with gradients on has used it: one write is due.
  void note_use() { ++pending_uses_; }
  int pending_uses() const { return pending_uses_; }
  /// Where an op writes; `accumulate` says whether to add. Marks the gradient as started. The
  /// view's dtype is the strategy's choice and may differ from the tensor's: see ops::store.
  struct Target {
    at::Tensor view;
    bool accumulate;
  };
  Target gradient_target();
  /// Whether the strategy takes the gradient as rows, by add_gradient_rows, and not through
  /// gradient_target.
  bool takes_rows() const;
  /// Adds row i of `grad` [..., row_elements()] to row indices[i] (int64); stands for a write.
  void add_gradient_rows(const at::Tensor& indices, const at::Tensor& grad);
  /// The op has written; the last due write reports gradient_ready.
  void gradient_written();
  /// Whether anything has been written since reset_gradient.
  bool gradient_started() const { return gradient_started_; }
  void reset_gradient() { gradient_started_ = false; }
  /// Forgets writes that will not come (a graph that was dropped).
  void forget_uses() { pending_uses_ = 0; }

 private:
  void renew_full(at::Device device);

  std::string name_;
  std::vector<std::int64_t> dims_;
  Init init_;
  std::int64_t numel_;
  int index_ = -1;
  Unit* unit_ = nullptr;
  bool requires_grad_ = true;
  bool decay_ = true;
  bool by_token_ = false;
  at::Tensor given_;
  at::Tensor full_;
  DType dtype_ = DType::kFloat32;
  bool bound_ = false;
  bool lent_ = false;
  std::int64_t version_ = 0;
  Hooks* hooks_ = nullptr;
  int pending_uses_ = 0;
  bool gradient_started_ = false;
};

}  // namespace shardbench

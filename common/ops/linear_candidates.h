#pragma once

#include <ATen/core/Tensor.h>

#include "common/ops/tuning.h"

namespace shardbench::ops {

/// Whether this LibTorch and machine have the candidate at all, for operands of the dtype.
bool available(Candidate candidate, DType dtype = DType::kFloat32);

/// The passes of linear.h by a given implementation. Where it cannot serve (a dtype that the
/// candidate does not take, no rows or columns, a target with gaps, a LibTorch without it) the
/// plain one does; that depends on the arguments and the machine only, so equal calls have equal
/// bits.
at::Tensor linear_by(Candidate candidate, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias);
at::Tensor linear_input_grad_by(Candidate candidate, const at::Tensor& grad,
                                const at::Tensor& weight);
void linear_weight_grad_by(Candidate candidate, const at::Tensor& grad, const at::Tensor& x,
                           const at::Tensor& target, bool accumulate);

/// The key of a call of one pass.
TuneKey linear_key(Pass pass, const at::Tensor& rows, std::int64_t in, std::int64_t out, bool bias,
                   bool accumulate);

}  // namespace shardbench::ops

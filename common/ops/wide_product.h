#pragma once

#include <ATen/core/Tensor.h>

#include "common/core/dtype.h"

namespace shardbench::ops {

/// Whether products of `dtype` can be written as fp32 here, without being rounded on the way: bf16,
/// where the CPU multiplies it by itself and LibTorch's oneDNN has its block kernels.
bool has_wide_product(DType dtype);

/// target (+)= grad^T x, added up in fp32. grad [rows, out] and x [rows, in] of a dtype for which
/// has_wide_product, target fp32 [out, in], contiguous.
void wide_weight_grad(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& target,
                      bool accumulate);

}  // namespace shardbench::ops

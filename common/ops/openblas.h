#pragma once

#include <ATen/core/Tensor.h>

namespace shardbench::ops::openblas {

/// Whether OpenBLAS's fp32 products can be used in this process: a library of it was there when the
/// program was built (or SHARDBENCH_OPENBLAS names one), it opens, and LibTorch computes with one
/// thread, as OpenBLAS does here. Found out once, without any effect on LibTorch's own BLAS.
bool available();

/// c = a b, or c += a b with `accumulate`. fp32 matrices; a and b have a unit stride in one of
/// their dimensions, c in its second, and no dimension exceeds int. Only if available().
void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool accumulate);

}  // namespace shardbench::ops::openblas

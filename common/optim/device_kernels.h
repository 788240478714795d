#pragma once

#include <ATen/core/Tensor.h>

#include "common/optim/kernels.h"

/// The kernels of kernels.h in ATen's operations, for memory of any device: element by element in
/// the same order of roundings, so that the bits are the host's wherever LibTorch's square root
/// rounds to the nearest (on the CPU it is MKL's, which may miss it by one place). Tensors are flat
/// views of the caller's memory; temporaries are of a block's size, whatever the piece.
namespace shardbench::optim::on_device {

void adamw(const AdamWStep& step, const at::Tensor& gradient, const at::Tensor& value,
           const at::Tensor& first_moment, const at::Tensor& second_moment);
void sgd(const SgdStep& step, const at::Tensor& gradient, const at::Tensor& value,
         const at::Tensor& momentum_buffer);

/// A flag of one element: whether all values are finite.
at::Tensor all_finite(const at::Tensor& values);

/// Sum of squares in fp64 of each of `rows`, whose last dimension is added up by halves: the bits
/// depend on its length only, not on how many rows there are.
at::Tensor sums_of_squares(const at::Tensor& rows);

}  // namespace shardbench::optim::on_device

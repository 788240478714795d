#pragma once

#include <ATen/core/Tensor.h>

#include "common/comm/convert.h"

namespace shardbench::train {

/// comm::convert and comm::widen_into on the threads there are, or queued on the device whose
/// memory it is.
void convert_on_threads(comm::ConstBuffer from, comm::Buffer to, at::Device device);
void widen_on_threads(comm::ConstBuffer from, float* to, bool add, at::Device device);

/// Rounds fp32 values to what they are after they travelled in `dtype`. Nothing for fp32.
void round_as(DType dtype, const at::Tensor& values);

}  // namespace shardbench::train

#pragma once

#include "common/comm/convert.h"

namespace shardbench::train {

/// comm::convert and comm::widen_into on the threads there are.
void convert_on_threads(comm::ConstBuffer from, comm::Buffer to);
void widen_on_threads(comm::ConstBuffer from, float* to, bool add);

/// Rounds fp32 values to what they are after they travelled in `dtype`. Nothing for fp32.
void round_as(DType dtype, float* values, std::int64_t count);

}  // namespace shardbench::train

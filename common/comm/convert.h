#pragma once

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// to = from, element by element, between fp32, bf16 and fp16. Narrowing rounds to nearest even,
/// which is what every conversion of a run does that ranks have to agree on, NaN included. Counts
/// are equal; the ranges do not overlap.
void convert(ConstBuffer from, Buffer to);

/// to = from, or to += from with `add`, where `to` is fp32: how what came in narrow is kept.
void widen_into(ConstBuffer from, float* to, bool add);

}  // namespace shardbench::comm

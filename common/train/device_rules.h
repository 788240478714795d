#pragma once

#include "common/train/config.h"

namespace shardbench::train {

/// Throws UserError that names the first thing a run on CUDA devices is asked for and cannot do.
/// Nothing for a run on the CPU. Needs no device and no ranks.
void validate_device(const RunConfig& config);

}  // namespace shardbench::train

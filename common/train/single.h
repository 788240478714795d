#pragma once

#include "common/train/registry.h"

namespace shardbench::train {

/// Adds `single`, the one-process strategy (W = 1 only), to the registry.
void register_single(Registry& registry);

}  // namespace shardbench::train

#pragma once

#include "common/train/registry.h"

namespace shardbench::cli {

/// All strategies this program knows. A new one is one line here.
train::Registry all_strategies();

}  // namespace shardbench::cli

#pragma once

#include <memory>

#include "common/models/config.h"
#include "common/modules/module.h"

namespace shardbench::models {

/// Builds the module tree; no parameter has memory until a strategy gives it some. The root's
/// forward takes (tokens int64 [B, T], targets int64 [B, T]) and returns the mean loss, a scalar.
std::unique_ptr<Model> build(const ModelConfig& config);

}  // namespace shardbench::models

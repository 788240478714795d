#pragma once

#include <string>
#include <vector>

#include "common/train/config.h"

namespace shardbench::testing {

/// A run of a small model of the preset's family, with uneven rows everywhere, on synthetic data.
train::RunConfig small_run(const std::string& preset);

/// Trains under every strategy (or those named) and world size: each must equal its reference bit
/// for bit, and counted bytes and persistent memory their closed forms. Expects; use SCOPED_TRACE.
void expect_parity(const train::RunConfig& base, const std::vector<int>& worlds,
                   const std::vector<std::string>& strategies = {});

}  // namespace shardbench::testing

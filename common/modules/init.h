#pragma once

#include <cstdint>

#include "common/modules/parameter.h"

namespace shardbench {

/// Writes elements [begin, begin + count) of the parameter's initial value to `out`. Each element
/// is a function of (seed, parameter name, element index) only, so any rank can make any part;
/// given values are copied. Throws UserError if those were dropped since.
void initialize(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                std::int64_t count, float* out);

}  // namespace shardbench

#pragma once

#include <cstdint>
#include <span>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// Throws UserError naming dtype and operation when they do not go together: an average of int64,
/// any reduction of uint8.
void check_reducible(DType dtype, ReduceOp op);

/// destination[i] = op over sources[0][i], sources[1][i], ... for `count` elements, for each
/// destination; with `accumulate`, destination[i] += that. Sources are added in order, the average
/// is one multiplication by 1 / `averaged` (0: sources.size()) at the end; bf16 and fp16 are
/// computed in fp32 and rounded once. A destination may be one of the sources (with `accumulate`
/// only if it is the only destination), but may not overlap one otherwise. One pass over the
/// memory, in blocks that stay in the cache.
void reduce_elements(DType dtype, ReduceOp op, std::span<const void* const> sources,
                     std::span<void* const> destinations, std::int64_t count, bool accumulate,
                     std::size_t averaged = 0);

}  // namespace shardbench::comm

#pragma once

#include <memory>

#include "common/comm/job.h"
#include "common/comm/launch/ranks.h"
#include "common/train/registry.h"
#include "common/train/result.h"
#include "common/train/runner.h"

namespace shardbench::train {

/// Sets this process or thread up for a run: threads, allocator, determinism, choices of
/// operations. Call it before the first tensor, and again before another run in the same process.
void prepare_process(const RunConfig& config);

/// What one rank does from start to result. Throws what goes wrong.
RankResult run_rank(const RunConfig& config, const Registry& registry, const comm::Seat& seat,
                    const RankObserver& observer);

/// References A and B of the run, in this process alone, on the run's device; the seat's job is
/// told the progress.
ReferenceResult run_references(const RunConfig& config, AccumulationOrder order,
                               const comm::Seat& seat);

}  // namespace shardbench::train

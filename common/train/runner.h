#pragma once

#include <functional>

#include "common/comm/launch/ranks.h"
#include "common/train/config.h"
#include "common/train/limit.h"
#include "common/train/registry.h"
#include "common/train/result.h"

namespace shardbench::train {

/// Progress of a run, called in the launcher (never in a rank): steps done so far, out of all.
using Progress = std::function<void(int done, int all)>;

/// Called in rank 0's own process while it trains (so output appears as it happens); may be empty.
/// Steps count from 1.
struct RankObserver {
  std::function<void(int step, const StepRecord& record)> step;
  std::function<void(int step, double loss, bool last)> evaluation;
};

/// Checks the request before any rank starts: strategy known, sizes sensible, data readable and
/// long enough, options that exclude each other. Throws UserError.
void validate(const RunConfig& config, const Registry& registry);

/// Throws UserError when the states of all ranks together, by formula, are more than this machine
/// has memory. Activations and the reference come on top, so what passes may still be too much.
void require_memory(const RunConfig& config, const Registry& registry);

/// Trains one strategy on `ranks` and brings back what each measured. Never throws for what a rank
/// did: see StrategyRun::failure.
StrategyRun run_strategy(comm::Ranks& ranks, const RunConfig& config, const Registry& registry,
                         const Progress& progress = {}, const RankObserver& observer = {});

/// Runs references A and B (whole batch at once) of the same job in one process.
/// `order` is how A adds micro-batches and ranks up; it only matters with accumulation > 1.
struct ReferenceRun {
  std::optional<ReferenceResult> result;
  std::optional<comm::AbortRecord> failure;
  int signal = 0;
};
ReferenceRun run_reference(comm::Ranks& ranks, const RunConfig& config, AccumulationOrder order,
                           const Progress& progress = {});

/// Measures the operations of this job in one process: runs a micro-batch for its shapes,
/// then times what can compute them (ops::measure). Never throws for what went wrong there: the
/// table is then the fixed rule, with a note.
struct TuningRun {
  ops::TuningTable table;
  int signal = 0;
};
TuningRun run_tuning(comm::Ranks& ranks, const RunConfig& config);

/// Measures them for the job's model, batch, dtypes, optimizer and world size.
struct LimitRun {
  std::optional<LimitPieces> pieces;
  std::optional<comm::AbortRecord> failure;
  int signal = 0;
};
LimitRun run_limit(comm::Ranks& ranks, const RunConfig& config);

}  // namespace shardbench::train

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/sweep.h"
#include "common/sharding/formulas.h"
#include "common/train/config.h"

namespace shardbench::bench {

/// What one invocation compares: strategies x world sizes x what it sweeps, on the same data.
struct Request {
  train::RunConfig base;  ///< strategy, world_size and what `sweep` lists are filled in per row
  std::vector<std::string> strategies;
  std::vector<int> worlds;
  std::optional<std::int64_t> global_batch;  ///< sequences per step over all ranks; sets batch
  int repetitions = 1;
  Sweep sweep;
  bool limit = false;              ///< measure the parts of a step by themselves, too
  double peak_tflops = 0;          ///< of one rank, for its utilisation; 0: not given
  std::vector<std::string> peers;  ///< rows of other frameworks (choose_peers); empty: none
};

/// The job of one row, with the base's values of what the request sweeps. Throws UserError when the
/// global batch does not divide, naming the nearest that does.
train::RunConfig config_for(const Request& request, const std::string& strategy, int world_size);

/// What the closed forms read of a job. `model` must outlive the result.
sharding::FormulaInput formula_input(const train::RunConfig& config,
                                     const sharding::ModelShape& model);

/// Tokens of one optimizer step over all ranks.
std::int64_t tokens_per_step(const train::RunConfig& config);

/// "true", "false" or "auto".
std::string to_string(train::Reshard reshard);

/// What moves the bytes of the request's jobs of this size: local for one rank without a network.
std::string backend_of(const Request& request, int world_size);

/// Whether operations compute in fp32 and gradients travel as fp32.
bool all_fp32(const train::RunConfig& config);

/// "fp32", or "bf16 (reduce fp32)": what operations compute in and gradients travel as, and the
/// loss scale where there is one.
std::string precision_text(const train::RunConfig& config);

/// The line above every table: model, parameters, W, batch, sequence, dtype, units, backend, link;
/// lists where the request has them. `worlds` are those the table shows.
std::string context_line(const Request& request, const sharding::ModelShape& model,
                         const std::vector<int>& worlds);

/// Names a unit that holds more than half of the weights, with its share: sharding then saves
/// little, since a unit is whole while it is used. Empty when there is none.
std::string oversized_unit(const train::RunConfig& config, const sharding::ModelShape& model);

}  // namespace shardbench::bench

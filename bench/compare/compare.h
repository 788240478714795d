#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/compare/peer.h"
#include "bench/compare/request.h"
#include "bench/compare/row.h"
#include "common/train/runner.h"

namespace shardbench::bench {

/// What trains and judges: the train room, or made-up results in tests.
struct Engine {
  std::function<train::StrategyRun(const train::RunConfig&, const train::Progress&,
                                   const train::RankObserver&)>
      run;
  std::function<train::ReferenceRun(const train::RunConfig&, train::AccumulationOrder,
                                    const train::Progress&)>
      reference;
  std::function<train::Parity(const train::StrategyRun&, const train::ReferenceResult&)> judge;
  std::function<train::TuningRun(const train::RunConfig&)> tune;  ///< empty: nothing to measure
  std::function<train::LimitRun(const train::RunConfig&)> limit;  ///< for Request::limit
  /// Another framework doing the job; only called for Request::peers.
  std::function<PeerRun(const PeerKind&, const train::RunConfig&, const train::Progress&)> run_peer;
};

/// Told while a comparison runs; all may be empty.
struct Observer {
  /// A training run starts: its name, its place among all of them (from 1), how many there are.
  std::function<void(const std::string& name, int index, int all)> begin;
  train::Progress progress;  ///< steps of the present run
  /// Operations are about to be measured, and what came of it.
  std::function<void()> tuning;
  std::function<void(const ops::TuningTable& table)> tuned;
};

/// All rows of one combination of what the request goes through, the baseline first.
struct Block {
  int world_size = 0;
  std::vector<Row> rows;            ///< their jobs differ in the strategy only
  double reference_distance = 0;    ///< parameters after AdamW, whole batch at once; shown only
  std::vector<PeerRow> peers = {};  ///< the same job done by other frameworks
};

struct Comparison {
  Request request;
  sharding::ModelShape model;
  std::vector<Block> blocks;  ///< in the order of blocks_of
  int signal = 0;             ///< that ended it early, or 0
  int cores = 0;              ///< of the machine it ran on; 0: not known
};

/// The strategy that ratio columns refer to: ddp where it is compared, else the first.
std::string baseline_of(const std::vector<std::string>& strategies);
/// The strategies, baseline first, the others as given.
std::vector<std::string> row_order(const std::vector<std::string>& strategies);

/// For each world size: the references first, one for all blocks with the same work (the batch; not
/// units, prefetch, link or buckets); then `repetitions` rounds over all rows of all its blocks
/// (A B C A B C), so that a machine that slows down meets all of them; peers follow their block's
/// rows in every round. Every run is judged before its times count. A row that failed is not run
/// again; a signal ends the comparison.
/// Throws UserError for a request that cannot be met, before anything runs.
Comparison compare(const Request& request, const train::Registry& registry, const Engine& engine,
                   const Observer& observer = {});

/// How many training runs `compare` will do: references, and all together.
int references_of(const Request& request, const train::Registry& registry);
int runs_of(const Request& request, const train::Registry& registry);

/// 0: all right; 1: a row is wrong, threw, or sent other bytes than calculated; 3: a rank was lost
/// or a deadline passed; 128 + signal.
int exit_code(const Comparison& comparison);
int exit_code(const Row& row);

}  // namespace shardbench::bench

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/compare/compare.h"

namespace shardbench::bench {

/// Made-up results of made-up strategies, so that the runner and its tables can be tested without
/// training: traffic and memory are what the closed forms say, every step takes 100 ms.
struct FakeEngine {
  std::int64_t step_ns = 100'000'000;
  std::int64_t warmup_ns = 900'000'000;  ///< steps before the measured ones
  std::function<std::int64_t(const train::RunConfig&)> step_ns_of;  ///< over step_ns, if given
  std::vector<std::string> log;                                     ///< what ran, in order
  std::vector<train::RunConfig> jobs;                               ///< of the strategies, in order
  std::vector<train::RunConfig> reference_jobs;                     ///< of the references

  std::vector<train::LimitPieces> limits;  ///< one after the other, the last one again

  /// Changes a run before it is handed over: to plant errors. May be empty.
  std::function<void(train::StrategyRun&)> spoil;
  std::function<void(train::ReferenceRun&)> spoil_reference;
  std::function<void(train::Parity&, const train::StrategyRun&)> spoil_parity;

  /// Uses this object, which must outlive it.
  Engine engine();
};

/// ddp, zero1, zero2, zero3 and fsdp with their formulas; nothing that could train.
train::Registry fake_registry();

/// A request for a model of a few thousand parameters; W = 2, batch 4, seq 8, 2 + 10 steps.
Request small_request();

/// One rank's results as FakeEngine makes them.
train::RankResult fake_rank(const train::RunConfig& config, sharding::FormulaKind kind, int rank,
                            std::int64_t warmup_ns, std::int64_t step_ns);

}  // namespace shardbench::bench

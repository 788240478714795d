#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/recorder.h"
#include "common/memory/tracker.h"
#include "common/modules/module.h"
#include "common/train/config.h"
#include "common/train/registry.h"
#include "common/train/strategy.h"

namespace shardbench::testing {

/// ddp, zero1, zero2, zero3 and fsdp.
train::Registry all_strategies();
std::vector<std::string> strategy_names();

/// A training job on a model of the test's own, run under one strategy on forked ranks and, in
/// every rank again, by the one-process reference; all owned values, moments and losses must have
/// the same bits.
struct StrategyCase {
  std::function<std::unique_ptr<Model>()> build;  ///< may place it on guarded_device()
  /// Runs forward (and, for several graphs, backward) of one micro-batch of one rank; the returned
  /// losses are then run backward in this order, scaled by 1 / accumulation.
  std::function<std::vector<at::Tensor>(Model& model, int step, int micro, int rank)> forward;
  std::string units = "block";
  int steps = 3;
  int accumulation = 1;
  double max_norm = 0;
  train::OptimizerConfig optimizer;
  train::StrategyOptions options;
  /// Extra checks in each rank of the strategy's run, after each step; throw to fail.
  struct Seen {
    Model& model;
    train::Strategy& strategy;
    comm::Recorder& comm;
    int step;
    double gradient_norm;
  };
  std::function<void(const Seen&)> after_step;
  bool poison_memory = false;  ///< fresh and freed memory is NaN
};

/// Runs the case; empty when all is equal, else what differed (or the rank's failure).
std::string run_case(const StrategyCase& test, const std::string& strategy, int world_size);

/// A fixed fp32 tensor whose elements depend on the seeds only, in (-1, 1).
at::Tensor fixed(at::IntArrayRef sizes, int a, int b = 0, int c = 0);

}  // namespace shardbench::testing

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "common/core/error.h"
#include "common/data/token_source.h"
#include "common/models/build.h"
#include "common/ops/dtype.h"
#include "common/ops/tuner.h"
#include "common/train/feed.h"
#include "common/train/rank_run.h"
#include "common/train/shapes_only.h"

namespace shardbench::train {

namespace {

/// What a step of the run asks the table for.
std::vector<ops::TuneKey> keys_of(const RunConfig& config) {
  const auto source = data::open_source(config.data, config.seed, config.model.vocab);
  const Feed feed(config, *source);
  const std::unique_ptr<Model> model = models::build(config.model);
  const ops::KeyRecorder recorder;
  // Strategies that reduce once per step have gradients written in fp32, the others as they travel.
  const std::set<DType> gradient_dtypes = {DType::kFloat32, config.options.reduce_dtype};
  for (const DType gradient_dtype : gradient_dtypes) {
    ShapesOnly hooks(*model, config.options.compute_dtype, gradient_dtype);
    // From the second micro-batch on gradients are added to what is there.
    const int micro_batches = std::min(config.accumulation, 2);
    for (int micro = 0; micro < micro_batches; ++micro) {
      const Batch batch = feed.training(0, micro, 0);
      (*model)(batch.tokens, batch.targets).backward();
    }
  }
  return recorder.keys();
}

ops::TuningTable measured_table(const RunConfig& config) {
  const std::vector<ops::TuneKey> keys = keys_of(config);
  ops::TuningTable table;
  table.mode = ops::TuneMode::kOn;
  table.entries = ops::measure(keys);
  if (table.entries.size() < keys.size()) {
    table.note = fmt::format(
        "autotuning measured {} of {} shapes before its time was up; the others follow the fixed "
        "rule",
        table.entries.size(), keys.size());
  }
  return table;
}

}  // namespace

TuningRun run_tuning(comm::Ranks& ranks, const RunConfig& config) {
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(1000 * config.timeout_s));
  RunConfig plain = config;
  plain.tuning = {ops::TuneMode::kOff, {}, ""};
  const comm::JobOutcome outcome = ranks.run_alone(timeout, [&](const comm::Seat&) {
    prepare_process(plain);
    return serialize(measured_table(plain));
  });
  TuningRun run;
  run.signal = outcome.signal;
  if (outcome.ok) {
    run.table = deserialize_tuning(outcome.results[0]);
  } else {
    run.table.mode = ops::TuneMode::kFixed;
    run.table.note = fmt::format("autotuning failed ({}); the fixed rule is used",
                                 outcome.failure ? outcome.failure->message : "no result");
  }
  return run;
}

}  // namespace shardbench::train

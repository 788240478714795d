#include "common/train/runner.h"

#include <algorithm>
#include <chrono>

#include "common/core/error.h"
#include "common/core/format.h"
#include "common/core/machine_info.h"
#include "common/data/token_source.h"
#include "common/models/config.h"
#include "common/train/device_rules.h"
#include "common/train/rank_run.h"

namespace shardbench::train {

namespace {

constexpr int kMaxWorldSize = 64;

void require(bool ok, const char* flag, std::int64_t value, const char* valid) {
  if (!ok) throw UserError::format("{} {} is not possible: give {}", flag, value, valid);
}

/// A reference does the work of all ranks and of the whole batch in one step.
double reference_timeout_s(const RunConfig& config) {
  return config.timeout_s * config.world_size * config.accumulation;
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// Steps done, out of all; nothing where nobody asked.
comm::OnProgress steps_of(const Progress& progress, int all) {
  if (!progress) return {};
  return [progress, all](std::int64_t done) { progress(static_cast<int>(done), all); };
}

/// Makes the run's config say how many steps there really were.
void note_early_stop(StrategyRun& run) {
  const auto done = static_cast<int>(run.ranks[0].steps.size());
  const int wanted = run.config.all_steps();
  if (done == wanted) return;
  run.config.steps = done - run.config.warmup;
  run.stopped_early =
      fmt::format("the data of rank {} end after {} of {} steps: all ranks stop there",
                  run.ranks[0].shortest_rank, done, wanted);
}

/// Whether the model can take windows and micro-batches of these sizes.
void check_feed(const RunConfig& config) {
  const std::int64_t fixed = models::fixed_seq(config.model);
  if (fixed > 0 && config.seq != fixed) {
    throw UserError::format("--seq {}: a window of {} is one image; nearest: {}", config.seq,
                            config.model.name, fixed);
  }
  if (config.seq > config.model.context) {
    throw UserError::format(
        "--seq {} is longer than the context of {}: give at most {}, or raise "
        "--context",
        config.seq, config.model.name, config.model.context);
  }
  const std::int64_t least = models::least_batch(config.model);
  if (config.batch < least) {
    throw UserError::format(
        "--batch {}: the last stage of {} has one position, and statistics of one value per "
        "channel have no variance; nearest: {} (or a larger image, or fewer layers)",
        config.batch, config.model.name, least);
  }
}

void check_in_place(const StrategyEntry& entry) {
  using Kind = sharding::FormulaKind;
  if (entry.formula == Kind::kZero3 || entry.formula == Kind::kFsdp) return;
  throw UserError::format(
      "--collectives in-place: {} gathers no weights that could be read in place; give --strategy "
      "with zero3 or fsdp only",
      entry.name);
}

void check_step_in_backward(const RunConfig& config, const StrategyEntry& entry) {
  using Kind = sharding::FormulaKind;
  if (config.accumulation > 1) {
    throw UserError::format(
        "--optimizer-in-backward steps weights in the first backward of a step: --grad-accum {} "
        "needs gradients that are kept; leave one out",
        config.accumulation);
  }
  if (entry.formula == Kind::kZero2 || entry.formula == Kind::kZero3 ||
      entry.formula == Kind::kFsdp) {
    return;
  }
  throw UserError::format(
      "--optimizer-in-backward: {} keeps every gradient until the step; give --strategy with "
      "zero2, "
      "zero3 or fsdp only",
      entry.name);
}

void check_sparse_embedding(const RunConfig& config, const StrategyEntry& entry) {
  if (entry.formula == sharding::FormulaKind::kSingle) {
    throw UserError::format("--sparse-embedding: {} sends no gradients; leave it out", entry.name);
  }
  if (config.model.family == models::Family::kConvnet) {
    throw UserError::format("--sparse-embedding: {} looks up no tokens; leave it out",
                            config.model.name);
  }
  if (config.model.tied) {
    throw UserError::format(
        "--sparse-embedding needs --untied: the output head of {} is the token embedding, and its "
        "gradient has every row",
        config.model.name);
  }
}

}  // namespace

void validate(const RunConfig& config, const Registry& registry) {
  const StrategyEntry& entry = registry.find(config.strategy);
  require(config.world_size >= 1 && config.world_size <= kMaxWorldSize, "--world",
          config.world_size, "a number from 1 to 64");
  require(config.batch >= 1, "--batch", config.batch, "a number >= 1");
  require(config.seq >= 1, "--seq", config.seq, "a number >= 1");
  require(config.steps >= 1, "--steps", config.steps, "a number >= 1");
  require(config.warmup >= 0, "--warmup", config.warmup, "a number >= 0");
  require(config.accumulation >= 1, "--grad-accum", config.accumulation, "a number >= 1");
  require(config.threads >= 1, "--threads", config.threads, "a number >= 1");
  validate(config.options);
  validate_device(config);
  validate_loss_scale(config.options, config.loss_scale);
  validate_step_in_backward(config.options, config.max_norm, config.loss_scale.has_value());
  if (config.options.optimizer_in_backward) check_step_in_backward(config, entry);
  validate_sparse_embedding(config.options);
  if (config.options.sparse_embedding) check_sparse_embedding(config, entry);
  if (config.options.collectives == CollectiveMode::kInPlace) check_in_place(entry);
  if (!(config.timeout_s >= 0.001)) {
    throw UserError::format("--timeout {} is too short: give seconds, at least 0.001",
                            config.timeout_s);
  }
  if (entry.formula == sharding::FormulaKind::kSingle && config.world_size != 1) {
    throw UserError::format("strategy {} runs in one process: give --world 1, not {}", entry.name,
                            config.world_size);
  }
  if (config.inject && config.inject->rank >= config.world_size) {
    throw UserError::format("--inject names rank {}, but --world {} has ranks 0 to {}",
                            config.inject->rank, config.world_size, config.world_size - 1);
  }
  if (config.inject && config.inject->step > config.warmup + config.steps) {
    throw UserError::format("--inject names step {}, but the run has {} (warm-up included)",
                            config.inject->step, config.warmup + config.steps);
  }
  if (config.inject && config.inject->kind == Injection::Kind::kShort &&
      config.inject->step <= config.warmup + 1) {
    throw UserError::format("--inject leaves no step to measure: name step {} or a later one",
                            config.warmup + 2);
  }
  models::validate(config.model);
  check_feed(config);
  validate(config.optimizer);
  sharding::plan_units(models::shape_of(config.model), config.options.units);
  data::open_source(config.data, config.seed, config.model.vocab)
      ->require_windows(config.seq, /*held_out=*/true);
}

void require_memory(const RunConfig& config, const Registry& registry) {
  if (config.device == DeviceKind::kCuda) return;  // it is the GPUs' memory that counts
  const sharding::ModelShape shape = models::shape_of(config.model);
  sharding::FormulaInput input;
  input.model = &shape;
  input.units = config.options.units;
  input.world_size = config.world_size;
  input.optimizer_moments = moments_of(config.optimizer);
  input.compute_dtype = config.options.compute_dtype;
  input.reduce_dtype = config.options.reduce_dtype;
  std::int64_t bytes = 0;
  for (int rank = 0; rank < config.world_size; ++rank) {
    bytes +=
        sharding::formula_memory(registry.find(config.strategy).formula, input, rank).persistent();
  }
  const std::int64_t memory = machine_info().memory_bytes;
  if (memory > 0 && bytes > memory) {
    throw UserError::format(
        "{} under {} with --world {} needs {} GiB for weights, gradients and optimizer state "
        "alone; this machine has {} GiB: take a smaller model or fewer ranks",
        config.model.name, config.strategy, config.world_size, format_gib(bytes),
        format_gib(memory));
  }
}

StrategyRun run_strategy(comm::Ranks& ranks, const RunConfig& config, const Registry& registry,
                         const Progress& progress, const RankObserver& observer) {
  StrategyRun run;
  run.config = config;
  const comm::JobOutcome outcome = ranks.run(
      {config.world_size, to_milliseconds(config.timeout_s), config.backend,
       config.device == DeviceKind::kCuda},
      [&](const comm::Seat& seat) {
        prepare_process(config);
        return serialize(
            run_rank(config, registry, seat, seat.rank == 0 ? observer : RankObserver{}));
      },
      steps_of(progress, config.all_steps()));
  run.failure = outcome.failure;
  run.signal = outcome.signal;
  if (outcome.ok) {
    for (const std::string& text : outcome.results) run.ranks.push_back(deserialize(text));
    note_early_stop(run);
  }
  return run;
}

ReferenceRun run_reference(comm::Ranks& ranks, const RunConfig& config, AccumulationOrder order,
                           const Progress& progress) {
  ReferenceRun run;
  const comm::JobOutcome outcome = ranks.run_alone(
      to_milliseconds(reference_timeout_s(config)),
      [&](const comm::Seat& seat) {
        prepare_process(config);
        return serialize(run_references(config, order, seat));
      },
      steps_of(progress, 2 * config.all_steps()), config.device == DeviceKind::kCuda);
  run.failure = outcome.failure;
  run.signal = outcome.signal;
  if (outcome.ok) run.result = deserialize_reference(outcome.results[0]);
  return run;
}

}  // namespace shardbench::train

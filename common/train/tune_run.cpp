#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "common/core/error.h"
#include "common/data/token_source.h"
#include "common/models/build.h"
#include "common/ops/tuner.h"
#include "common/train/feed.h"
#include "common/train/rank_run.h"

namespace shardbench::train {

namespace {

/// Lets a model run for the sake of its shapes: all weights share one memory, full of zeros, and
/// all gradients another, each as large as the largest tensor.
class ShapesOnly : public Hooks {
 public:
  explicit ShapesOnly(Model& model) : model_(model) {
    std::int64_t largest = 0;
    for (const Parameter* p : model.parameters()) largest = std::max(largest, p->numel());
    weights_ = at::zeros({largest}, at::TensorOptions().dtype(at::kFloat));
    gradients_ = at::zeros_like(weights_);
    for (Parameter* p : model.parameters()) p->bind(weights_.mutable_data_ptr<float>());
    model.attach(*this, {sharding::UnitPolicy::Kind::kWhole, 0, ""});
  }
  ~ShapesOnly() override {
    model_.detach();
    for (Parameter* p : model_.parameters()) p->unbind();
  }

  void before_forward(Unit&) override {}
  void after_forward(Unit&) override {}
  void before_backward(Unit&) override {}
  at::Tensor gradient_target(Parameter& parameter) override {
    return gradients_.narrow(0, 0, parameter.numel()).view(parameter.dims());
  }
  void gradient_ready(Parameter&) override {}
  void after_backward(Unit&) override {}
  void end_of_backward() override {}

 private:
  Model& model_;
  at::Tensor weights_;
  at::Tensor gradients_;
};

/// What a step of the run asks the table for.
std::vector<ops::TuneKey> keys_of(const RunConfig& config) {
  const auto source = data::open_source(config.data, config.seed, config.model.vocab);
  const Feed feed(config, *source);
  const std::unique_ptr<Model> model = models::build(config.model);
  ShapesOnly hooks(*model);
  const ops::KeyRecorder recorder;
  // From the second micro-batch on gradients are added to what is there.
  const int micro_batches = std::min(config.accumulation, 2);
  for (int micro = 0; micro < micro_batches; ++micro) {
    const Batch batch = feed.training(0, micro, 0);
    (*model)(batch.tokens, batch.targets).backward();
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

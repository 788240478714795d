#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "common/core/error.h"
#include "common/data/token_source.h"
#include "common/models/build.h"
#include "common/modules/op_probe.h"
#include "common/optim/optimizer.h"
#include "common/train/feed.h"
#include "common/train/rank_run.h"
#include "common/train/result.h"
#include "common/train/runner.h"
#include "common/train/shapes_only.h"

namespace shardbench::train {

namespace {

using Clock = std::chrono::steady_clock;

/// Runs of each piece; the shortest counts, since others who use the machine only add to it.
constexpr int kRuns = 5;

template <typename Run>
std::int64_t shortest_ns(int runs, const Run& run) {
  std::int64_t best = 0;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    const std::int64_t ns = std::chrono::nanoseconds(Clock::now() - start).count();
    best = i == 0 ? ns : std::min(best, ns);
  }
  return best;
}

/// Adds up each op's shortest time.
class StopWatch : public OpProbe {
 public:
  at::Tensor forward(const Forward& run) override {
    at::Tensor result;
    forward_ns += shortest_ns(kRuns, [&] { result = run(); });
    return result;
  }
  std::vector<at::Tensor> backward(const Backward& run) override {
    std::vector<at::Tensor> result;
    backward_ns += shortest_ns(kRuns, [&] { result = run(); });
    return result;
  }

  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
};

void measure_ops(const RunConfig& config, int rank, LimitPieces& pieces) {
  const auto source = data::open_source(config.data, config.seed, config.model.vocab);
  const Feed feed(config, *source);
  const std::unique_ptr<Model> model = models::build(config.model);
  ShapesOnly hooks(*model, config.options.compute_dtype, config.options.reduce_dtype);
  const Batch batch = feed.training(0, 0, rank);
  StopWatch watch;
  const ProbeScope scope(watch);
  (*model)(batch.tokens, batch.targets).backward();
  pieces.forward_ns = watch.forward_ns;
  pieces.backward_ns = watch.backward_ns;
}

/// One optimizer over memory larger than caches: the time of an element.
double optimizer_ns_per_element(const OptimizerConfig& config) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  Parameter parameter("all", {kElements / 1024, 1024}, Init::constant(0));
  parameter.set_index(0);
  const at::Tensor value = at::ones({kElements}), gradient = at::ones({kElements});
  const Owned owned{{{&parameter, 0, kElements, value.mutable_data_ptr<float>(),
                      gradient.mutable_data_ptr<float>(), 0}},
                    kElements};
  const auto optimizer = optim::make_optimizer(config, owned);
  const std::int64_t ns = shortest_ns(kRuns, [&] { optimizer->step(owned, {1}, 1.0f); });
  return static_cast<double>(ns) / static_cast<double>(kElements);
}

/// A copy of memory larger than caches: bytes that leave for another place in a nanosecond.
double copied_bytes_per_ns() {
  constexpr std::size_t kBytes = std::size_t{1} << 26;
  const at::Tensor from = at::ones({static_cast<std::int64_t>(kBytes)}, at::kByte);
  const at::Tensor to = at::ones({static_cast<std::int64_t>(kBytes)}, at::kByte);
  const std::int64_t ns = shortest_ns(
      kRuns, [&] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), kBytes); });
  return static_cast<double>(kBytes) / static_cast<double>(ns);
}

LimitPieces measure_pieces(const RunConfig& config, const comm::Seat& seat) {
  const comm::Transport transport = seat.connect();
  prepare_process(config);
  LimitPieces pieces;
  const auto together = [&](const char* what) {  // all ranks at once, as in a step
    transport.ranks->barrier({what, Phase::kMetrics}).wait();
  };
  together("operations");
  measure_ops(config, seat.rank, pieces);
  together("optimizer");
  pieces.optimizer_ns_per_element = optimizer_ns_per_element(config.optimizer);
  together("copy");
  pieces.copied_bytes_per_ns = copied_bytes_per_ns();
  together("end");
  return pieces;
}

}  // namespace

LimitRun run_limit(comm::Ranks& ranks, const RunConfig& config) {
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(1000 * config.timeout_s));
  const comm::JobOutcome outcome =
      ranks.run({config.world_size, timeout, config.backend},
                [&](const comm::Seat& seat) { return serialize(measure_pieces(config, seat)); });
  LimitRun run;
  run.signal = outcome.signal;
  run.failure = outcome.failure;
  if (!outcome.ok) return run;
  LimitPieces slowest;
  for (const std::string& text : outcome.results) {
    const LimitPieces rank = deserialize_limit(text);
    slowest.forward_ns = std::max(slowest.forward_ns, rank.forward_ns);
    slowest.backward_ns = std::max(slowest.backward_ns, rank.backward_ns);
    slowest.optimizer_ns_per_element =
        std::max(slowest.optimizer_ns_per_element, rank.optimizer_ns_per_element);
    slowest.copied_bytes_per_ns =
        slowest.copied_bytes_per_ns == 0
            ? rank.copied_bytes_per_ns
            : std::min(slowest.copied_bytes_per_ns, rank.copied_bytes_per_ns);
  }
  run.pieces = slowest;
  return run;
}

}  // namespace shardbench::train

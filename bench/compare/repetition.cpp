#include "bench/compare/repetition.h"

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

RepetitionTimes times_of(const train::StrategyRun& run) {
  SHARDBENCH_CHECK(!run.ranks.empty());
  RepetitionTimes times;
  const std::size_t steps = run.ranks.front().steps.size();
  for (auto s = static_cast<std::size_t>(run.config.warmup); s < steps; ++s) {
    const train::StepRecord* slowest = &run.ranks.front().steps[s];
    std::int64_t exposed = 0;
    for (const train::RankResult& rank : run.ranks) {
      if (rank.steps[s].step_ns > slowest->step_ns) slowest = &rank.steps[s];
      exposed += rank.steps[s].exposed_ns;
    }
    times.step.push_back(slowest->step_ns);
    times.forward.push_back(slowest->forward_ns);
    times.backward.push_back(slowest->backward_ns);
    times.optimizer.push_back(slowest->optimizer_ns);
    times.exposed.push_back(exposed / static_cast<std::int64_t>(run.ranks.size()));
  }
  return times;
}

}  // namespace

std::vector<RepetitionTimes> times_by_repetition(const std::vector<train::StrategyRun>& runs) {
  std::vector<RepetitionTimes> all;
  all.reserve(runs.size());
  for (const train::StrategyRun& run : runs) all.push_back(times_of(run));
  return all;
}

}  // namespace shardbench::bench

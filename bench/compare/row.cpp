#include "bench/compare/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/compare/request.h"
#include "bench/compare/traffic.h"
#include "common/core/error.h"
#include "common/models/config.h"

namespace shardbench::bench {
namespace {

using Field = std::int64_t train::StepRecord::*;

Spread over_ranks(const std::vector<RankFigures>& ranks,
                  const std::function<double(const RankFigures&)>& figure) {
  std::vector<double> values;
  values.reserve(ranks.size());
  for (const RankFigures& rank : ranks) values.push_back(figure(rank));
  return spread_of(values);
}

/// Measured steps (warm-up left out) of one rank over all repetitions.
std::vector<const train::StepRecord*> measured_steps(const std::vector<train::StrategyRun>& runs,
                                                     std::size_t rank) {
  std::vector<const train::StepRecord*> steps;
  for (const train::StrategyRun& run : runs) {
    const std::vector<train::StepRecord>& all = run.ranks[rank].steps;
    for (auto i = static_cast<std::size_t>(run.config.warmup); i < all.size(); ++i) {
      steps.push_back(&all[i]);
    }
  }
  return steps;
}

double median_over(const std::vector<const train::StepRecord*>& steps, Field field) {
  std::vector<double> values;
  values.reserve(steps.size());
  for (const train::StepRecord* step : steps) {
    values.push_back(static_cast<double>(step->*field));
  }
  return median_of(std::move(values));
}

/// A run that ended must hold every step of every rank.
void check_complete(const train::StrategyRun& run) {
  SHARDBENCH_CHECK_EQ(run.ranks.size(), static_cast<std::size_t>(run.config.world_size));
  for (const train::RankResult& rank : run.ranks) {
    SHARDBENCH_CHECK_EQ(rank.steps.size(),
                        static_cast<std::size_t>(run.config.warmup + run.config.steps));
  }
}

/// Of each measured step the slowest rank, and that rank's phases.
void set_times(Row& row, const std::vector<train::StrategyRun>& runs) {
  std::vector<std::vector<const train::StepRecord*>> by_rank;
  for (std::size_t r = 0; r < row.ranks.size(); ++r) by_rank.push_back(measured_steps(runs, r));
  std::vector<const train::StepRecord*> slowest = by_rank.front();
  for (const auto& steps : by_rank) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i]->step_ns > slowest[i]->step_ns) slowest[i] = steps[i];
    }
  }
  std::vector<std::int64_t> times;
  for (const train::StepRecord* step : slowest) times.push_back(step->step_ns);
  row.step = summarize(std::move(times));
  row.forward_ns = median_over(slowest, &train::StepRecord::forward_ns);
  row.backward_ns = median_over(slowest, &train::StepRecord::backward_ns);
  row.optimizer_ns = median_over(slowest, &train::StepRecord::optimizer_ns);
  row.tokens_per_s = tokens_per_second(tokens_per_step(row.config), row.step.median);

  for (std::size_t r = 0; r < row.ranks.size(); ++r) {
    RankFigures& rank = row.ranks[r];
    rank.comm_ns = median_over(by_rank[r], &train::StepRecord::comm_ns);
    rank.exposed_ns = median_over(by_rank[r], &train::StepRecord::exposed_ns);
    rank.peer_wait_ns = median_over(by_rank[r], &train::StepRecord::peer_wait_ns);
    rank.overlap_ns = std::max(0.0, rank.comm_ns - rank.exposed_ns);
    rank.minor_faults = median_over(by_rank[r], &train::StepRecord::minor_faults);
    for (const train::StepRecord* step : by_rank[r]) {
      rank.system_allocations =
          std::max(rank.system_allocations, static_cast<double>(step->system_allocations));
    }
  }
}

RankFigures figures_of(const train::RankResult& result, const std::vector<TrafficRow>& traffic) {
  RankFigures rank;
  rank.rank = result.rank;
  rank.pid = result.pid;
  rank.memory = result.memory;
  rank.persistent_bytes = memory::persistent(result.memory.between_steps);
  for (const TrafficRow& entry : traffic) {
    if (entry.rank != result.rank || entry.phase == Phase::kMetrics) continue;
    rank.sent_bytes += entry.algo_bytes;
    rank.formula_sent_bytes += entry.formula_bytes.value_or(0);
    if (entry.kind != comm::CollectiveKind::kBarrier) rank.calls += entry.calls;
  }
  return rank;
}

/// The first place, in any repetition, where bytes counted and calculated are not the same.
std::string traffic_error(const std::vector<train::StrategyRun>& runs,
                          sharding::FormulaKind formula, const sharding::FormulaInput& input) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::string error = first_disagreement(traffic_rows(runs[r].ranks, formula, input),
                                           runs[r].config.backend == "mpi");
    for (const train::RankResult& rank : runs[r].ranks) {
      if (error.empty() && !rank.traffic_steady) {
        error = fmt::format("rank {}: measured steps sent different amounts", rank.rank);
      }
    }
    if (error.empty()) continue;
    return runs.size() == 1 ? error : fmt::format("repetition {}, {}", r + 1, error);
  }
  return {};
}

/// Everything but the verdict, from runs that all ended.
Row measure(const std::vector<train::StrategyRun>& runs, sharding::FormulaKind formula,
            const sharding::ModelShape& model) {
  for (const train::StrategyRun& run : runs) check_complete(run);
  const train::StrategyRun& last = runs.back();
  const train::RankResult& first_rank = runs.front().ranks.front();
  Row row;
  row.config = last.config;
  row.formula = formula;
  row.repetitions = static_cast<int>(runs.size());
  const sharding::FormulaInput input = formula_input(row.config, model);
  row.traffic = traffic_rows(last.ranks, formula, input);
  row.call_totals = call_totals(last.ranks);
  row.traffic_error = traffic_error(runs, formula, input);
  for (const train::RankResult& result : last.ranks) {
    row.ranks.push_back(figures_of(result, row.traffic));
    row.ranks.back().formula = sharding::formula_memory(formula, input, result.rank);
  }
  for (const train::StepRecord& step : first_rank.steps) {
    row.losses.push_back(step.loss);
    row.gradient_norms.push_back(step.gradient_norm);
    if (!row.config.loss_scale) continue;
    row.loss_scales.push_back(step.loss_scale);
    if (step.skipped) row.skipped_steps.push_back(static_cast<int>(row.losses.size()));
  }
  row.evaluation_losses = first_rank.evaluation_losses;
  row.evaluation_steps = first_rank.evaluation_steps;
  row.unused_parameters = first_rank.unused_parameters;
  row.stopped_early = last.stopped_early;
  set_times(row, runs);
  row.by_repetition = times_by_repetition(runs);
  return row;
}

}  // namespace

Spread Row::persistent() const {
  return over_ranks(ranks, [](const auto& r) { return static_cast<double>(r.persistent_bytes); });
}
Spread Row::peak() const {
  return over_ranks(ranks, [](const auto& r) { return static_cast<double>(r.memory.peak); });
}
Spread Row::first_step_peak() const {
  return over_ranks(ranks,
                    [](const auto& r) { return static_cast<double>(r.memory.first_step_peak); });
}
Spread Row::init_peak() const {
  return over_ranks(ranks, [](const auto& r) { return static_cast<double>(r.memory.init_peak); });
}
Spread Row::rss_peak() const {
  return over_ranks(ranks, [](const auto& r) { return static_cast<double>(r.memory.rss_peak); });
}
Spread Row::pss_peak() const {
  return over_ranks(ranks, [](const auto& r) { return static_cast<double>(r.memory.pss_peak); });
}
Spread Row::sent() const {
  return over_ranks(ranks, [](const auto& r) { return static_cast<double>(r.sent_bytes); });
}
Spread Row::exposed() const {
  return over_ranks(ranks, [](const auto& r) { return r.exposed_ns; });
}
Spread Row::comm() const {
  return over_ranks(ranks, [](const auto& r) { return r.comm_ns; });
}
Spread Row::minor_faults() const {
  return over_ranks(ranks, [](const auto& r) { return r.minor_faults; });
}
Spread Row::system_allocations() const {
  return over_ranks(ranks, [](const auto& r) { return r.system_allocations; });
}
Spread Row::overlap() const {
  return over_ranks(ranks, [](const auto& r) { return r.overlap_ns; });
}

int Row::first_bad_loss() const {
  for (std::size_t s = 0; s < losses.size(); ++s) {
    if (!std::isfinite(losses[s])) return static_cast<int>(s) + 1;
  }
  return 0;
}

double Row::utilization(double peak_tflops) const {
  SHARDBENCH_CHECK(peak_tflops > 0);
  return models::flops_per_token(config.model, config.seq) * tokens_per_s /
         (config.world_size * peak_tflops * 1e12);
}

double Row::limit_ns() const {
  SHARDBENCH_CHECK(limit.has_value() && measured());
  const int moments = train::moments_of(config.optimizer);
  const double elements = static_cast<double>(fullest_rank().formula.optimizer) / (4.0 * moments);
  return limit->step_ns(config.accumulation, elements, sent().mean);
}

double Row::kind_ns(Phase phase, comm::CollectiveKind kind) const {
  double ns = 0;
  for (const CallTotal& total : call_totals) {
    if (total.phase == phase && total.kind == kind) ns += total.ns;
  }
  return ns;
}

const RankFigures& Row::peak_rank() const {
  SHARDBENCH_CHECK(measured());
  return *std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.memory.peak < b.memory.peak;
  });
}

const RankFigures& Row::fullest_rank() const {
  SHARDBENCH_CHECK(measured());
  return *std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.persistent_bytes < b.persistent_bytes;
  });
}

Row failed_row(const train::RunConfig& config, sharding::FormulaKind formula,
               const std::optional<comm::AbortRecord>& failure, int signal,
               const std::string& reason) {
  Row row;
  row.config = config;
  row.formula = formula;
  row.state = Row::State::kFailed;
  row.failure = failure;
  row.signal = signal;
  row.reason = reason;
  if (failure) row.reason += (reason.empty() ? "" : ": ") + describe(*failure);
  if (signal != 0) row.reason = fmt::format("stopped by signal {}", signal);
  return row;
}

Row make_row(const std::vector<train::StrategyRun>& runs,
             const std::vector<train::Parity>& verdicts, const train::ReferenceResult& reference,
             sharding::FormulaKind formula, const sharding::ModelShape& model) {
  SHARDBENCH_CHECK(!runs.empty());
  const train::StrategyRun& last = runs.back();
  if (last.failure || last.signal != 0) {
    return failed_row(last.config, formula, last.failure, last.signal, "");
  }
  SHARDBENCH_CHECK_EQ(runs.size(), verdicts.size());
  Row row = measure(runs, formula, model);
  row.judged = true;
  row.whole_batch = reference.whole_batch;
  row.gradient_max_rel_diff = reference.gradient_max_rel_diff;
  const auto wrong = std::find_if(verdicts.begin(), verdicts.end(),
                                  [](const train::Parity& verdict) { return !verdict.ok; });
  row.parity = wrong == verdicts.end() ? verdicts.back() : *wrong;
  if (wrong != verdicts.end()) {
    row.state = Row::State::kWrong;
    row.reason = wrong->detail;
  }
  return row;
}

Row measured_row(const train::StrategyRun& run, sharding::FormulaKind formula,
                 const sharding::ModelShape& model) {
  if (run.failure || run.signal != 0) {
    return failed_row(run.config, formula, run.failure, run.signal, "");
  }
  return measure({run}, formula, model);
}

}  // namespace shardbench::bench

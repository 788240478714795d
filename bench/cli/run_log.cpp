#include "bench/cli/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "bench/compare/format.h"
#include "bench/compare/request.h"
#include "bench/compare/statistics.h"
#include "common/core/error.h"

namespace shardbench::cli {
namespace {

std::int64_t slowest(const train::StrategyRun& run, std::size_t step) {
  std::int64_t ns = 0;
  for (const train::RankResult& rank : run.ranks) ns = std::max(ns, rank.steps[step].step_ns);
  return ns;
}

/// Largest peak over ranks: of step 1, or of all steps.
std::int64_t peak_bytes(const train::StrategyRun& run, bool first_step) {
  std::int64_t bytes = 0;
  for (const train::RankResult& rank : run.ranks) {
    bytes = std::max(bytes, rank.memory.first_step_peak);
    if (!first_step) bytes = std::max(bytes, rank.memory.peak);
  }
  return bytes;
}

std::string evaluation_line(int step, double loss, const LogOptions& options, bool last) {
  std::string line = fmt::format("{:>7}  held out {:.4f} nats per token", step, loss);
  if (options.bigram) {
    line += fmt::format(", bigram baseline {:.4f}: {}", *options.bigram,
                        loss < *options.bigram ? "below" : "not below");
  }
  return line + (last ? " (all of the held-out part)\n" : "\n");
}

}  // namespace

std::string training_log(const train::StrategyRun& run, const LogOptions& options) {
  SHARDBENCH_CHECK(!run.ranks.empty());
  const train::RankResult& first = run.ranks.front();
  const auto all = static_cast<int>(first.steps.size());
  const auto tokens = bench::tokens_per_step(run.config);
  std::string out =
      fmt::format("{:>7} {:>9} {:>10} {:>9} {:>8} {:>9}\n{:>7} {:>9} {:>10} {:>9} {:>8} {:>9}\n",
                  "step", "loss", "grad_norm", "lr", "tok/s", "peak", "", "", "", "", "", "(MiB)");
  std::int64_t since_ns = 0;
  int since_steps = 0;
  // The first evaluation is the parity gate's own, after step 1.
  std::size_t evaluation = 1;
  for (int step = 1; step <= all; ++step) {
    const train::StepRecord& record = first.steps[static_cast<std::size_t>(step - 1)];
    since_ns += slowest(run, static_cast<std::size_t>(step - 1));
    ++since_steps;
    if (step == 1 || step == all || step % options.log_every == 0) {
      out +=
          fmt::format("{:>7} {:>9.4f} {:>10.4f} {:>9.3g} {:>8.0f} {:>9}\n", step, record.loss,
                      record.gradient_norm, train::learning_rate(run.config.optimizer, step - 1),
                      bench::tokens_per_second(tokens * since_steps, static_cast<double>(since_ns)),
                      bench::mib(static_cast<double>(peak_bytes(run, step == 1))));
      since_ns = 0;
      since_steps = 0;
    }
    for (; evaluation < first.evaluation_steps.size() && first.evaluation_steps[evaluation] == step;
         ++evaluation) {
      out += evaluation_line(step, first.evaluation_losses[evaluation], options,
                             evaluation + 1 == first.evaluation_steps.size());
    }
  }
  return out;
}

}  // namespace shardbench::cli

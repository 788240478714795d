#include "bench/cli/run_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/compare/format.h"
#include "bench/compare/request.h"
#include "bench/compare/statistics.h"

namespace shardbench::cli {

TrainingLog::TrainingLog(const train::RunConfig& config, const LogOptions& options)
    : config_(config), options_(options) {}

std::string TrainingLog::header() const {
  constexpr const char* kLine = "{:>7} {:>9} {:>10} {:>9} {:>8} {:>9}{}\n";
  const std::string scale = config_.loss_scale ? fmt::format(" {:>11}", "loss_scale") : "";
  return fmt::format(fmt::runtime(kLine), "step", "loss", "grad_norm", "lr", "tok/s", "peak",
                     scale) +
         fmt::format(fmt::runtime(kLine), "", "", "", "", "", "(MiB)", "");
}

std::string TrainingLog::step(int step, const train::StepRecord& record, std::int64_t peak_bytes) {
  since_ns_ += record.step_ns;
  ++since_steps_;
  peak_bytes_ = std::max(peak_bytes_, peak_bytes);
  const bool last = step == config_.warmup + config_.steps;
  std::string skipped;
  if (record.skipped) {
    skipped = fmt::format("{:>7}  skipped: a gradient overflowed at loss scale {}\n", step,
                          record.loss_scale);
  }
  if (step != 1 && !last && step % options_.log_every != 0) return skipped;
  const std::int64_t tokens = bench::tokens_per_step(config_) * since_steps_;
  const std::string line =
      fmt::format("{:>7} {:>9.4f} {:>10.4f} {:>9.3g} {:>8.0f} {:>9}{}\n", step, record.loss,
                  record.gradient_norm, train::learning_rate(config_.optimizer, step - 1),
                  bench::tokens_per_second(tokens, static_cast<double>(since_ns_)),
                  bench::mib(static_cast<double>(peak_bytes_)),
                  config_.loss_scale ? fmt::format(" {:>11}", record.loss_scale) : "");
  since_ns_ = 0;
  since_steps_ = 0;
  return skipped + line;
}

std::string TrainingLog::evaluation(int step, double loss, bool last) const {
  std::string line = fmt::format("{:>7}  held out {:.4f} nats per token", step, loss);
  if (options_.bigram) {
    line += fmt::format(", bigram baseline {:.4f}: {}", *options_.bigram,
                        loss < *options_.bigram ? "below" : "not below");
  }
  return line + (last ? " (all of the held-out part)\n" : "\n");
}

}  // namespace shardbench::cli

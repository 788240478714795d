#include <fmt/format.h>

#include "bench/compare/explain.h"
#include "bench/compare/format.h"
#include "common/models/config.h"

namespace shardbench::bench {
namespace {

std::string steps_text(int n) { return fmt::format("{} step{}", n, n == 1 ? "" : "s"); }

std::string samples_text(const Row& row) {
  const std::string repetitions =
      row.repetitions > 1 ? fmt::format("{} repetitions x ", row.repetitions) : std::string();
  return repetitions + steps_text(row.config.steps);
}

std::string tokens_text(const Row& row) {
  const train::RunConfig& c = row.config;
  const std::string micro =
      c.accumulation > 1 ? fmt::format(" x {} micro-batches", c.accumulation) : std::string();
  return fmt::format("W {} x batch {}{} x {} tokens = {}", c.world_size, c.batch, micro, c.seq,
                     tokens_per_step(c));
}

std::string seconds(double ns) { return fmt::format("{:.4g} s", ns / 1e9); }

std::string scaling(const Example& example, const std::string& key) {
  const Row& row = *example.row;
  const Row* base = scaling_base(*example.comparison, row);
  if (base == nullptr) return {};
  const int w = row.config.world_size;
  const int w0 = base->config.world_size;
  if (key == "speed_up") {
    return fmt::format("tok/s over that of W={}: {:.0f} / {:.0f} = {}.", w0, row.tokens_per_s,
                       base->tokens_per_s, ratio(row.tokens_per_s / base->tokens_per_s));
  }
  return fmt::format("tok/s/rank over that of W={}: ({:.0f} / {}) / ({:.0f} / {}) = {} %.", w0,
                     row.tokens_per_s, w, base->tokens_per_s, w0,
                     percent(row.tokens_per_s / w / (base->tokens_per_s / w0)));
}

std::string explain_step(const Row& row, const std::string& key) {
  if (key == "step_ms") {
    return fmt::format(
        "Forward, backward and optimizer of one step, of the slowest rank in it; the median of {} "
        "= {} ({} of warm-up left out).",
        samples_text(row), ms(row.step.median), steps_text(row.config.warmup));
  }
  if (key == "step_ci95_percent") {
    if (row.step.ci95_half < 0) return "One step has no interval: n/m.";
    return fmt::format(
        "Half the 95 % interval of that median (order statistics), over it: {} / {} ms = {} %.",
        ms(row.step.ci95_half), ms(row.step.median), percent(row.step.ci95_half / row.step.median));
  }
  if (key == "step_min_ms") {
    return fmt::format("Fastest of the {}: {}.", samples_text(row), ms(row.step.min));
  }
  if (key == "step_max_ms") {
    return fmt::format("Slowest of the {}: {}.", samples_text(row), ms(row.step.max));
  }
  if (key == "forward_ms") {
    return "Forward of all micro-batches, of the rank that was slowest in the step; median.";
  }
  if (key == "backward_ms") {
    return fmt::format(
        "Backward with the reductions in it. Medians, so they need not add up: {} + {} + {} beside "
        "{}.",
        ms(row.forward_ns), ms(row.backward_ns), ms(row.optimizer_ns), ms(row.step.median));
  }
  if (key == "optimizer_ms") return "The update of what the rank owns, and what follows of it.";
  return {};
}

std::string explain_communication(const Row& row, const std::string& key) {
  const double comm = row.comm().mean;
  const double exposed = row.exposed().mean;
  if (key == "comm_ms") {
    if (row.config.link) {
      return "From issue to completion, the union over all calls of a step; mean over ranks.";
    }
    if (row.config.comm_thread) {
      return "Time in which the rank's communication thread moved bytes or the rank stood in a "
             "wait; "
             "mean over ranks.";
    }
    return "The same as exposed: each rank moves its own bytes in its own waits.";
  }
  if (key == "exposed_ms") {
    return fmt::format(
        "Time in which a rank stands in waits: for peers, the link, or moving bytes itself; mean "
        "over ranks = {} of {} ms.",
        ms(exposed), ms(row.step.median));
  }
  if (key == "overlap_ms") {
    return fmt::format("Communication behind computing: comm - exposed = {} - {} = {}.", ms(comm),
                       ms(exposed), ms(row.overlap().mean));
  }
  if (key == "limit_ms" && row.limit) {
    const train::LimitPieces& pieces = *row.limit;
    return fmt::format(
        "The parts of a step by themselves, on all ranks at once: {} x (forward {} + backward {}), "
        "each operation at its shortest time, + optimizer {} ns per element + {} bytes at {:.1f} "
        "GB/s, the speed of a copy = {}.",
        row.config.accumulation, ms(static_cast<double>(pieces.forward_ns)),
        ms(static_cast<double>(pieces.backward_ns)),
        fmt::format("{:.3f}", pieces.optimizer_ns_per_element),
        static_cast<std::int64_t>(row.sent().mean), pieces.copied_bytes_per_ns, ms(row.limit_ns()));
  }
  if (key == "limit_ratio" && row.limit) {
    return fmt::format("Step over the limit: {} / {} = {}.", ms(row.step.median),
                       ms(row.limit_ns()), ratio(row.step.median / row.limit_ns()));
  }
  if (key == "overlap_percent") {
    if (comm <= 0) return "Overlap over comm; nothing was communicated.";
    return fmt::format("Overlap over comm: {} / {} = {} %.", ms(row.overlap().mean), ms(comm),
                       percent(row.overlap().mean / comm));
  }
  return {};
}

}  // namespace

std::string explain_time(const Example& example, const std::string& key) {
  const Row& row = *example.row;
  const double rate = row.tokens_per_s;
  if (key == "tokens_per_s") {
    return fmt::format("Tokens of a step over all ranks, over its time: {} / {} = {:.0f}.",
                       tokens_text(row), seconds(row.step.median), rate);
  }
  if (key == "tokens_per_s_per_rank") {
    return fmt::format("tok/s / W = {:.0f} / {} = {:.0f}.", rate, row.config.world_size,
                       rate / row.config.world_size);
  }
  if (key == "tokens_per_s_ratio") {
    if (example.baseline == nullptr) return "The baseline has no right row: a dash.";
    return fmt::format("tok/s over that of {}: {:.0f} / {:.0f} = {}.", example.baseline->strategy(),
                       rate, example.baseline->tokens_per_s,
                       ratio(rate / example.baseline->tokens_per_s));
  }
  if (key == "mfu_percent") {
    const double peak = example.comparison->request.peak_tflops;
    return fmt::format(
        "FLOPs per token x tok/s / (W x peak of a rank): {:.4g} x {:.0f} / ({} x {} x 10^12) = {} "
        "%.",
        models::flops_per_token(row.config.model, row.config.seq), rate, row.config.world_size,
        peak, percent(row.utilization(peak)));
  }
  if (key == "global_batch") {
    return "Sequences of one step over all ranks: batch per rank x micro-batches x W.";
  }
  if (key == "speed_up" || key == "efficiency_percent") return scaling(example, key);
  const std::string text = explain_step(row, key);
  return text.empty() ? explain_communication(row, key) : text;
}

}  // namespace shardbench::bench

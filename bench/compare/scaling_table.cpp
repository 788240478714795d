// T6: what more ranks bring, against the fewest that were measured.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/row_table.h"
#include "bench/compare/screens.h"
#include "bench/compare/utilization.h"

namespace shardbench::bench {
namespace {

/// Rows of one strategy that differ in W only, W rising.
using Series = std::vector<const Row*>;

std::vector<Axis> settings_of(const Request& request) {
  // With a global batch the batch per rank follows from W.
  std::vector<Axis> axes(kAxes.begin(), kAxes.end());
  if (request.global_batch) std::erase(axes, Axis::kBatch);
  return axes;
}

/// In the order of the rows of the first block.
std::vector<Series> all_series(const Comparison& comparison) {
  std::vector<Series> all;
  std::map<std::string, std::size_t> places;
  const std::vector<Axis> settings = settings_of(comparison.request);
  std::vector<const Row*> rows = rows_of(comparison);
  std::stable_sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
    return a->config.world_size < b->config.world_size;
  });
  for (const Row* row : rows) {
    const auto [place, is_new] =
        places.try_emplace(row->strategy() + ';' + values_of(settings, row->config), all.size());
    if (is_new) all.emplace_back();
    all[place->second].push_back(row);
  }
  return all;
}

/// The smallest W of the series that was measured right, or null.
const Row* base_of(const Series& series) {
  const auto base =
      std::find_if(series.begin(), series.end(), [](const Row* row) { return row->right(); });
  return base == series.end() ? nullptr : *base;
}

double rate_per_rank(const Row& row) { return row.tokens_per_s / row.config.world_size; }

double waiting(const Row& row) { return row.exposed().mean / row.step.median; }

std::vector<int> worlds_of(const Comparison& comparison) {
  std::vector<int> worlds;
  for (const Block& block : comparison.blocks) worlds.push_back(block.world_size);
  std::sort(worlds.begin(), worlds.end());
  worlds.erase(std::unique(worlds.begin(), worlds.end()), worlds.end());
  return worlds;
}

std::string kind_of_scaling(const Comparison& comparison, const std::vector<int>& worlds) {
  const Request& request = comparison.request;
  const std::int64_t parts = request.base.accumulation;
  const std::string micro = parts > 1 ? fmt::format(" x {} micro-batches", parts) : std::string();
  std::vector<std::string> values;
  if (request.global_batch) {
    for (int w : worlds) values.push_back(fmt::format("{}", *request.global_batch / (w * parts)));
    return fmt::format(
        "Strong scaling: the global batch stays {} (--global-batch), so a rank does less as W "
        "grows: batch per rank {}{} at W={}.",
        *request.global_batch, fmt::join(values, ", "), micro, fmt::join(worlds, ", "));
  }
  if (varies(request, Axis::kBatch)) {
    return "Weak scaling: the batch per rank stays the same as W grows; the global batch is W "
           "times as large.";
  }
  for (int w : worlds) values.push_back(fmt::format("{}", request.base.batch * w * parts));
  return fmt::format(
      "Weak scaling: the batch per rank stays {}{}, so the global batch grows: {} at W={}.",
      request.base.batch, micro, fmt::join(values, ", "), fmt::join(worlds, ", "));
}

std::vector<std::string> notes_above(const Comparison& comparison) {
  const std::vector<int> worlds = worlds_of(comparison);
  std::vector<std::string> notes = {kind_of_scaling(comparison, worlds)};
  if (worlds.size() < 2) {
    notes.push_back("One world size has nothing to be compared with: give --world 1,2,4.");
    return notes;
  }
  notes.push_back(
      worlds.front() == 1
          ? std::string("Speed-up and efficiency are against W=1 of the same strategy; efficiency "
                        "is tok/s/rank over that of W=1.")
          : fmt::format("Speed-up and efficiency are against W={}, the smallest measured, of the "
                        "same strategy (W=1 is not among --world).",
                        worlds.front()));
  const std::string crowded = crowded_cores(comparison);
  if (!crowded.empty()) notes.push_back(crowded);
  return notes;
}

}  // namespace

const Row* scaling_base(const Comparison& comparison, const Row& row) {
  for (const Series& series : all_series(comparison)) {
    if (std::find(series.begin(), series.end(), &row) != series.end()) return base_of(series);
  }
  return nullptr;
}

std::string crowded_cores(const Comparison& comparison) {
  if (comparison.cores <= 0) return {};
  const int threads = comparison.request.base.threads;
  std::vector<int> crowded;
  for (int w : worlds_of(comparison)) {
    if (w * threads > comparison.cores) crowded.push_back(w);
  }
  if (crowded.empty()) return {};
  const std::string each =
      threads > 1 ? fmt::format(" of {} threads each", threads) : std::string();
  return fmt::format(
      "At W={} the ranks{} share the {} cores of this machine: their times say what it costs to "
      "take turns, not how the strategy scales.",
      fmt::join(crowded, ", "), each, comparison.cores);
}

std::vector<std::string> slower_with_more_ranks(const Comparison& comparison) {
  std::vector<std::string> lines;
  for (const Series& series : all_series(comparison)) {
    const Row* best = nullptr;
    for (const Row* row : series) {
      if (!row->right()) continue;
      if (best != nullptr && row->tokens_per_s < best->tokens_per_s) {
        std::string line = fmt::format(
            "{} {} does {:.0f} tok/s in total, fewer than W={} ({:.0f}): a rank waits in "
            "communication {} % of a step ({} % there)",
            row->strategy(), block_title(comparison.request, row->config), row->tokens_per_s,
            best->config.world_size, best->tokens_per_s, percent(waiting(*row)),
            percent(waiting(*best)));
        const int busy = row->config.world_size * row->config.threads;
        if (comparison.cores > 0 && busy > comparison.cores) {
          line += fmt::format(", and {} threads take turns on {} cores", busy, comparison.cores);
        }
        lines.push_back(line + ".");
      }
      if (best == nullptr || row->tokens_per_s > best->tokens_per_s) best = row;
    }
  }
  return lines;
}

Section scaling_section(const Comparison& comparison) {
  const std::string rate = "throughput, tok/s";
  const double peak_tflops = comparison.request.peak_tflops;
  RowTable table(comparison, RowTable::Keys::kAll,
                 {{"batch", "global", false, "global_batch"},
                  {"step", "(ms)", false, "step_ms"},
                  {rate, "tok/s", false, "tokens_per_s"},
                  {rate, "tok/s/rank", false, "tokens_per_s_per_rank"},
                  {"", "speed-up", false, "speed_up"},
                  {"", "efficiency%", false, "efficiency_percent"},
                  mfu_column(peak_tflops),
                  {"states/rank", "(MiB)", false, "states_mib"}});
  for (const Series& series : all_series(comparison)) {
    const Row* base = base_of(series);
    for (const Row* row : series) {
      if (!row->right()) {
        table.add_verdict(*row);
        continue;
      }
      const train::RunConfig& config = row->config;
      table.add(*row, {Cell::of(config.batch * config.accumulation * config.world_size),
                       ms_cell(row->step.median), whole_cell(row->tokens_per_s),
                       whole_cell(rate_per_rank(*row)),
                       ratio_cell(row->tokens_per_s / base->tokens_per_s),
                       percent_cell(rate_per_rank(*row) / rate_per_rank(*base)),
                       mfu_cell(*row, peak_tflops), mib_cell(row->persistent().max)});
    }
  }
  std::vector<std::string> below = slower_with_more_ranks(comparison);
  for (const std::string& note : mfu_notes(comparison)) below.push_back(note);
  if (!below.empty()) below.insert(below.begin(), "");
  return {"", notes_above(comparison), table.take(), below};
}

}  // namespace shardbench::bench

#include "bench/compare/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/compare/format.h"

namespace shardbench::bench {
namespace {

/// The block with the largest W and in it the row to work on; no row if none is right.
Example example_of(const Comparison& comparison) {
  Example example;
  example.comparison = &comparison;
  example.parameters = static_cast<double>(comparison.model.parameter_count());
  for (const Block& block : comparison.blocks) {
    const Row* best = nullptr;
    for (const Row& row : block.rows) {
      if (!row.right()) continue;
      if (best == nullptr || row.shards_parameters() || !best->shards_parameters()) best = &row;
    }
    const bool larger = example.block == nullptr || block.world_size > example.block->world_size;
    if (best == nullptr || !larger) continue;
    example.block = &block;
    example.row = best;
    example.baseline = baseline_row(comparison, block);
  }
  return example;
}

/// "step ms", "sent MiB", "peak": the name with the first word of its group.
std::string topic_of(const Column& column) {
  const std::string word = column.group.substr(0, column.group.find_first_of(" ,/"));
  if (column.group.empty()) return column.name;
  if (column.name.empty() || column.name.front() == '(') return column.group;
  return word + " " + column.name;
}

std::string keeps(const Row& row) {
  if (row.config.world_size == 1) return "everything";
  if (!row.shards_anything()) return "weights, gradients and optimizer state whole";
  if (!row.shards_gradients()) return "weights and gradients whole, optimizer state of its tensors";
  if (!row.shards_parameters()) {
    return "weights whole, gradients and optimizer state of its tensors";
  }
  return row.has_owners() ? "all three of the tensors it owns, nothing of the others"
                          : "1/W of the rows of every tensor, of all three";
}

std::string explain_keys(const Example& example, const std::string& key) {
  const train::RunConfig& config = example.row->config;
  if (key == "strategy") {
    std::string text = "A rank keeps between steps:";
    bool first = true;
    for (const Row& row : example.block->rows) {
      text += fmt::format("{} {} {}", first ? "" : ";", row.strategy(), keeps(row));
      first = false;
    }
    return text + ".";
  }
  if (key == "world_size") return "Ranks: training processes that share the work.";
  if (key == "batch") return "Sequences of one rank in one micro-batch.";
  if (key == "units") {
    return fmt::format("What is unsharded, resharded and reduced together ({}).",
                       config.options.units.to_string());
  }
  if (key == "prefetch") return "Units that are gathered ahead of their use.";
  if (key == "link") return "The emulated network, RATE,LATENCY of each rank's port.";
  if (key == "bucket_cap_mib") return "Largest gradient bucket of strategies that have buckets.";
  if (key == "same_result" || key == "parity") {
    if (!example.row->judged) return "Trained without a reference beside it: not measured.";
    return fmt::format(
        "Losses of all {} steps, weights and optimizer state against one process that does the "
        "same work in the same order: bit for bit (hash {:016x}). A row that differs says WRONG "
        "and has no times.",
        config.warmup + config.steps, example.row->parity.hash);
  }
  return {};
}

}  // namespace

std::vector<Paragraph> explain(const Comparison& comparison, const Screen& screen) {
  const Example example = example_of(comparison);
  if (example.row == nullptr) return {};
  std::vector<Paragraph> out = {
      {"Columns",
       fmt::format(
           "with the numbers of {}, {}. MiB = 1024 KiB; P = {:.0f} parameters of 4 bytes{} = "
           "{} MiB; W = ranks.",
           example.row->strategy(), block_title(comparison.request, example.row->config),
           example.parameters, example.in_fp32(), mib(example.weights_bytes()))}};
  std::set<std::string> done;
  for (const Section& section : screen.sections) {
    for (const Column& column : section.table.columns()) {
      const std::string key = key_of(column);
      if (column.hidden || !done.insert(key).second) continue;
      for (const auto& part : {explain_keys, explain_time, explain_memory, explain_traffic,
                               explain_units, explain_peers}) {
        std::string text = part(example, key);
        if (text.empty()) continue;
        out.push_back({topic_of(column), std::move(text)});
        break;
      }
    }
  }
  return out;
}

}  // namespace shardbench::bench

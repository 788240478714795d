#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bench/compare/explain.h"
#include "bench/compare/format.h"

namespace shardbench::bench {
namespace {

using memory::Category;

double bytes(std::int64_t n) { return static_cast<double>(n); }

const char* words_for(Category category) {
  switch (category) {
    case Category::kParam:
      return "weights";
    case Category::kGrad:
      return "gradients";
    case Category::kOptimizer:
      return "optimizer state";
    case Category::kGatheredParam:
      return "gathered weights";
    case Category::kUnshardedGrad:
      return "unsharded gradients";
    case Category::kActivation:
      return "activations";
    case Category::kCommBuffer:
      return "communication buffers";
    case Category::kTemp:
      return "temporaries";
    case Category::kOther:
      return "other";
  }
  return "?";
}

std::string states_text(const Row& row) {
  const RankFigures& rank = row.fullest_rank();
  const sharding::FormulaMemory& formula = rank.formula;
  return fmt::format(
      "Between steps on the fullest rank ({}): weights {} + gradients {} + optimizer state {} by "
      "formula, padding {} bytes = {}.",
      rank.rank, mib(bytes(formula.param)), mib(bytes(formula.grad)), mib(bytes(formula.optimizer)),
      rank.memory.padding, mib(bytes(rank.persistent_bytes)));
}

/// "210.3 = weights 41.37 + ..., in backward, unit h.5".
std::string peak_of(const Row& row) {
  const RankFigures& rank = row.peak_rank();
  std::string parts;
  for (int c = 0; c < memory::kCategoryCount; ++c) {
    const std::int64_t part = rank.memory.at_peak[static_cast<std::size_t>(c)];
    if (part == 0) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", words_for(static_cast<Category>(c)),
                         mib(bytes(part)));
  }
  const std::string unit =
      rank.memory.peak_unit.empty() ? std::string() : ", unit " + rank.memory.peak_unit;
  return fmt::format("{} {} = {}, in {}{}", row.strategy(), mib(bytes(rank.memory.peak)), parts,
                     name_of(rank.memory.peak_phase), unit);
}

std::string peak_text(const Example& example) {
  std::string text =
      "Largest sum of all that was booked at one instant of the steps after the first, on the rank "
      "where it was largest. ";
  bool first = true;
  for (const Row& row : example.block->rows) {
    if (!row.right()) continue;
    text += fmt::format("{}{}", first ? "" : "; ", peak_of(row));
    first = false;
  }
  return text + ".";
}

std::string explain_part(const std::string& key) {
  static const std::array<std::pair<const char*, const char*>, 8> kParts = {{
      {"at_peak_param_mib", "Weights that the rank keeps, at the instant of its peak."},
      {"at_peak_grad_mib", "Gradients that it keeps."},
      {"at_peak_optimizer_mib", "Optimizer state (AdamW: two moments; SGD: momentum)."},
      {"at_peak_gathered_param_mib", "Full weights of units that are unsharded just then."},
      {"at_peak_unsharded_grad_mib", "Full gradients that are being written or reduced."},
      {"at_peak_activation_mib", "What forward keeps for backward."},
      {"at_peak_comm_buffer_mib", "Memory that only serves to move bytes."},
      {"at_peak_other_mib", "Temporaries inside operations, inputs, and the rest."},
  }};
  for (const auto& [name, text] : kParts) {
    if (key == name) return text;
  }
  return {};
}

std::string explain_booked(const Row& row, const std::string& key) {
  const RankFigures& rank = row.peak_rank();
  if (key == "peak_at") return "Phase and unit in which that peak stood.";
  if (key == "states_formula_mib") {
    return fmt::format(
        "The same from shapes, W and options alone: weights {} + gradients {} + "
        "optimizer state {} = {}.",
        mib(bytes(rank.formula.param)), mib(bytes(rank.formula.grad)),
        mib(bytes(rank.formula.optimizer)), mib(bytes(rank.formula.persistent())));
  }
  if (key == "states_diff_bytes") {
    return fmt::format("Booked - padding - formula: {} - {} - {} = {} bytes.",
                       rank.persistent_bytes, rank.memory.padding, rank.formula.persistent(),
                       rank.persistent_bytes - rank.memory.padding - rank.formula.persistent());
  }
  if (key == "padding_bytes") {
    return "Between pieces, since each starts on 64 bytes; part of the states, not of the formula.";
  }
  return {};
}

std::string explain_process(const Row& row, const std::string& key) {
  if (key == "first_step_peak_mib") {
    return fmt::format("The peak in step 1, where buffers are made and state is first touched: {}.",
                       mib(row.first_step_peak().max));
  }
  if (key == "init_peak_mib") {
    return "The peak before step 1, while weights and optimizer state are made.";
  }
  if (key == "rss_peak_mib") {
    return fmt::format(
        "Largest resident set of the process, which began with {}: LibTorch itself, and pages of "
        "peers' shared memory that this rank touched, are in it.",
        mib(bytes(row.peak_rank().memory.rss_start)));
  }
  if (key == "minor_faults") {
    return "Pages that a rank touches for the first time in a measured step (median; the largest "
           "over ranks): near zero where memory is used again.";
  }
  if (key == "system_allocations") {
    return "Times that the caching allocator had to ask the system for memory, at most in a "
           "measured step.";
  }
  if (key == "pss_peak_mib") {
    return "Proportional set after the steps: shared pages count in parts, so ranks can be added.";
  }
  return {};
}

}  // namespace

std::string explain_memory(const Example& example, const std::string& key) {
  const Row& row = *example.row;
  if (key == "states_mib") return states_text(row);
  if (key == "peak_mib") return peak_text(example);
  if (key == "peak_ratio") {
    if (example.baseline == nullptr) return "The baseline has no right row: a dash.";
    const double base = example.baseline->peak().max;
    return fmt::format("Peak over that of {}: {} / {} = {}.", example.baseline->strategy(),
                       mib(row.peak().max), mib(base), ratio(row.peak().max / base));
  }
  if (key == "states_max_over_mean") {
    const Spread states = row.persistent();
    return fmt::format("States of the fullest rank over the mean of all ranks: {} / {} = {}.",
                       mib(states.max), mib(states.mean), ratio(states.imbalance()));
  }
  for (const std::string& text :
       {explain_part(key), explain_booked(row, key), explain_process(row, key)}) {
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace shardbench::bench

#include "bench/compare/plain_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/compare/format.h"
#include "bench/compare/screens.h"
#include "bench/compare/utilization.h"

namespace shardbench::bench {
namespace {

constexpr double kBytesPerElement = 4;  // fp32
constexpr double kGigabit = 1e9;

const Row* first_right(const Block& block) {
  const auto row =
      std::find_if(block.rows.begin(), block.rows.end(), [](const Row& r) { return r.right(); });
  return row == block.rows.end() ? nullptr : &*row;
}

/// Names of the right rows that have the same value, in row order: {"ddp"}, {"zero3", "fsdp"}.
struct Sharers {
  std::string value;
  std::vector<std::string> names;
};
template <typename ValueOf>
std::vector<Sharers> grouped(const Block& block, ValueOf value_of) {
  std::vector<Sharers> groups;
  for (const Row& row : block.rows) {
    if (!row.right()) continue;
    const std::string value = value_of(row);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Sharers& group) { return group.value == value; });
    if (same == groups.end()) {
      groups.push_back({value, {row.strategy()}});
    } else {
      same->names.push_back(row.strategy());
    }
  }
  return groups;
}

std::string joined(const std::vector<Sharers>& groups, const std::string& separator) {
  std::string text;
  for (const Sharers& group : groups) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : separator, listing(group.names), group.value);
  }
  return text;
}

/// 16, 5.3.
std::string short_number(double value) {
  const std::string text = fmt::format("{:.1f}", value);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

std::string wrong_text(const Comparison& comparison) {
  std::string text;
  for (const Row* row : rows_of(comparison)) {
    const std::string what = row->right() ? row->traffic_error : verdict_text(*row);
    if (what.empty()) continue;
    text += fmt::format("{} {}: {}. ", row->strategy(),
                        block_title(comparison.request, row->config), what);
  }
  return text;
}

/// Losses that are no numbers are compared bit for bit like others, but nobody wants to train so.
std::string bad_loss_text(const Comparison& comparison) {
  for (const Row* row : rows_of(comparison)) {
    const int step = row->first_bad_loss();
    if (step == 0) continue;
    const double loss = row->losses[static_cast<std::size_t>(step) - 1];
    const bool all =
        std::all_of(comparison.blocks.begin(), comparison.blocks.end(), [](const Block& block) {
          return std::all_of(block.rows.begin(), block.rows.end(),
                             [](const Row& r) { return !r.measured() || r.first_bad_loss() > 0; });
        });
    return fmt::format(
        "The loss became {} at step {}{}: the rows are still compared bit for bit, but the "
        "training has failed (try a smaller --lr). ",
        std::isnan(loss) ? "NaN" : "infinite", step,
        all ? std::string() : fmt::format(" of {}", row->strategy()));
  }
  return {};
}

std::string result_text(const Comparison& comparison) {
  std::size_t right = 0;
  std::size_t all = 0;
  double distance = 0;
  bool bits = true;
  bool whole_batch = true;
  bool judged = true;
  std::vector<std::string> hashes;
  for (const Row* row : rows_of(comparison)) {
    ++all;
    if (!row->right()) continue;
    ++right;
    judged = judged && row->judged;
    bits = bits && row->parity.bit_equal;
    whole_batch = whole_batch && row->whole_batch;
    distance = std::max(distance, row->gradient_max_rel_diff);
    const std::string hash = fmt::format("{:016x}", row->parity.hash);
    if (std::find(hashes.begin(), hashes.end(), hash) == hashes.end()) hashes.push_back(hash);
  }
  std::string text = wrong_text(comparison) + bad_loss_text(comparison);
  if (right == 0) return text + "No row is right, so nothing is compared.";
  if (!judged) return text + "Trained without a reference, so the result was not compared.";
  const std::string who = right < all ? fmt::format("{} of {} rows end", right, all)
                          : all == 1  ? std::string("The row ends")
                                      : fmt::format("All {} rows end", all);
  const std::string hash =
      hashes.size() == 1
          ? "hash " + hashes.front()
          : fmt::format("{} hashes, one per W, batch and order of sums", hashes.size());
  const std::string whole =
      !all_fp32(comparison.request.base)
          ? std::string(
                "both round alike, so the whole batch at once, whose bounds are those of fp32, is "
                "not asked")
      : whole_batch
          ? fmt::format("step-1 gradients within {:.1e} of the whole batch at once", distance)
          : std::string(
                "the whole batch at once is no reference here, since the statistics of "
                "its normalization depend on how it is cut");
  return text + fmt::format(
                    "{} with the weights and optimizer state of one process doing the "
                    "same work{} ({}); {}.",
                    who, bits ? ", bit for bit" : "", hash, whole);
}

/// Who cuts what, where that is not all or nothing.
std::string partly_cut_text(const Block& block) {
  const auto cut = [](const Row& row) -> std::string {
    if (!row.shards_anything()) return "nothing";
    if (row.shards_parameters()) return "all three";
    return row.shards_gradients() ? "gradients and optimizer state" : "optimizer state";
  };
  const bool partly = std::any_of(block.rows.begin(), block.rows.end(), [](const Row& row) {
    return row.right() && row.shards_anything() && !row.shards_parameters();
  });
  if (!partly || block.world_size == 1) return {};
  std::string text;
  for (const Sharers& group : grouped(block, cut)) {
    const bool several = group.names.size() > 1;
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", listing(group.names),
                        several ? "cut" : "cuts", group.value);
  }
  return fmt::format(" Of the three, {}.", text);
}

/// What operations read where that is not what the optimizer steps.
std::string copies_text(const Block& block) {
  const DType dtype = block.rows.front().config.options.compute_dtype;
  if (dtype == DType::kFloat32) return {};
  std::vector<std::string> names;
  for (const Row& row : block.rows) {
    if (row.right() && !row.shards_parameters()) names.push_back(row.strategy());
  }
  const std::string whole =
      names.empty()
          ? std::string()
          : fmt::format("; {} {} a whole copy in {}, {} more", listing(names),
                        names.size() > 1 ? "keep" : "keeps", name_of(dtype), size_of(dtype));
  return fmt::format(" (all fp32; operations read {}{})", name_of(dtype), whole);
}

std::string memory_text(const Block& block, double parameters) {
  const train::StrategyOptions& options = block.rows.front().config.options;
  const bool narrow = options.compute_dtype != DType::kFloat32;
  const bool gradients = !options.optimizer_in_backward;
  const train::OptimizerConfig& optimizer = first_right(block)->config.optimizer;
  const double per_parameter =
      kBytesPerElement * ((gradients ? 2 : 1) + train::moments_of(optimizer));
  const auto states = [&](const Row& row) {
    const Spread persistent = row.persistent();
    const std::string least = bytes_differ(persistent) ? mib(persistent.min) + "-" : "";
    return fmt::format("{} ({}{} MiB)", short_number(persistent.mean / parameters), least,
                       mib(persistent.max));
  };
  const auto activations = [](const Row& row) {
    const auto index = static_cast<std::size_t>(memory::Category::kActivation);
    return fmt::format("{} MiB", mib(static_cast<double>(row.peak_rank().memory.at_peak[index])));
  };
  return fmt::format(
      "{}eights{} and {} state are {:.0f} bytes per parameter, {:.0f}/W = {} when cut{}. A rank "
      "keeps: {}.{} Activations stay whole: {}.",
      narrow ? "Master w" : "W", gradients ? ", gradients" : "",
      optimizer.kind == train::OptimizerKind::kAdamW ? "AdamW" : "SGD", per_parameter,
      per_parameter, short_number(per_parameter / block.world_size), copies_text(block),
      joined(grouped(block, states), "; "), partly_cut_text(block),
      joined(grouped(block, activations), ", "));
}

/// " in fp32; weights travel as bf16, gradients as fp32", where not all is fp32.
std::string narrow_text(const train::RunConfig& config) {
  if (all_fp32(config)) return {};
  return fmt::format(" in fp32; weights travel as {}, gradients as {}",
                     name_of(config.options.compute_dtype), name_of(config.options.reduce_dtype));
}

std::string traffic_text(const Block& block, double parameters) {
  const int world_size = block.world_size;
  if (world_size == 1) return "One rank sends nothing.";
  const double f = static_cast<double>(world_size - 1) / world_size;
  const double unit = f * kBytesPerElement * parameters;
  const auto multiple = [&](const Row& row) {
    return fmt::format("{:.2f}f", row.sent().mean / unit);
  };
  std::string text = fmt::format(
      "A rank sends per step, in multiples of the weights ({} MiB{}): {} with f = (W-1)/W = {}",
      mib(kBytesPerElement * parameters), narrow_text(block.rows.front().config),
      joined(grouped(block, multiple), ", "), ratio(f));
  const Row* ddp = nullptr;
  const Row* sharded = nullptr;
  for (const Row& row : block.rows) {
    if (!row.right()) continue;
    if (row.formula == sharding::FormulaKind::kDdp) ddp = &row;
    if (row.shards_parameters()) sharded = &row;
  }
  if (ddp != nullptr && sharded != nullptr) {
    text += fmt::format("; {} is {} x ddp", sharded->strategy(),
                        ratio(sharded->sent().mean / ddp->sent().mean));
  }
  const bool agree = std::all_of(block.rows.begin(), block.rows.end(), [](const Row& row) {
    return !row.right() || row.traffic_error.empty();
  });
  text += agree ? ". Bytes counted as they moved = formula, on every rank."
                : ". Counted bytes and formula DIFFER: see Result.";
  return text;
}

std::string waiting_text(const Block& block, const Invocation& invocation) {
  if (block.world_size == 1) {
    return "One rank waits for nobody: the rows differ by their overheads only.";
  }
  const train::RunConfig& config = block.rows.front().config;
  const auto waited = [](const Row& row) {
    return fmt::format("{} of {} ms", ms(row.exposed().mean), ms(row.step.median));
  };
  if (config.backend == "mpi" || config.backend == "nccl") {
    return fmt::format("Over {} a rank waits, per step: {}.", config.backend,
                       joined(grouped(block, waited), ", "));
  }
  const std::optional<comm::LinkModel>& link = config.link;
  if (link) {
    return fmt::format("With the link {} a rank waits, per step: {}. Without it: {}{}",
                       link->to_string(), joined(grouped(block, waited), ", "), invocation.command,
                       invocation.world);
  }
  const auto estimate = [](const Row& row) {
    const double network_ns = row.sent().mean * 8 / kGigabit * 1e9;
    return fmt::format("{} -> {} ms", ms(row.step.median), ms(row.step.median + network_ns));
  };
  const auto waits = [](const Row& row) {
    return fmt::format("{} %", percent(row.exposed().mean / row.step.median));
  };
  return fmt::format(
      "Through shared memory a rank waits {} of a step. A network of 1 Gbit/s, nothing hidden, "
      "would make it {} (estimate). See it: {}{} --link 1Gbit,20us",
      joined(grouped(block, waits), ", "), joined(grouped(block, estimate), ", "),
      invocation.command, invocation.world);
}

std::string time_text(const Comparison& comparison, const Block& block,
                      const Invocation& invocation) {
  std::string text;
  const std::vector<std::string> slower = slower_with_more_ranks(comparison);
  if (!slower.empty()) text += slower.front() + " ";
  if (slower.size() > 1) {
    text += fmt::format("So it is with {} more: {} --world {} --table scaling. ", slower.size() - 1,
                        invocation.command, fmt::join(comparison.request.worlds, ","));
  }
  const double peak_tflops = comparison.request.peak_tflops;
  if (peak_tflops > 0) {
    const auto used = [&](const Row& row) {
      return fmt::format("{} %", percent(row.utilization(peak_tflops)));
    };
    text += fmt::format("Of {} x 10^12 operations per second and rank the model uses: {}. ",
                        peak_tflops, joined(grouped(block, used), ", "));
    for (const std::string& note : mfu_notes(comparison)) text += note + " ";
  }
  return text + waiting_text(block, invocation);
}

/// Largest over mean of the persistent bytes that the formula gives at `world_size`.
double formula_imbalance(const Comparison& comparison, const Row& row, int world_size) {
  train::RunConfig config = row.config;
  config.world_size = world_size;
  const sharding::FormulaInput input = formula_input(config, comparison.model);
  std::vector<double> bytes;
  for (int rank = 0; rank < world_size; ++rank) {
    bytes.push_back(
        static_cast<double>(sharding::formula_memory(row.formula, input, rank).persistent()));
  }
  return spread_of(bytes).imbalance();
}

std::string balance_text(const Comparison& comparison, const Block& block,
                         const Invocation& invocation) {
  const int larger = block.world_size < 8 ? 8 : std::min(64, block.world_size * 2);
  std::string now;
  std::string then;
  std::vector<std::string> owners;
  for (const Row& row : block.rows) {
    if (!row.right() || !row.shards_anything()) continue;
    if (row.has_owners()) owners.push_back(row.strategy());
    const char* separator = now.empty() ? "" : ", ";
    now += fmt::format("{}{} {}", separator, row.strategy(), ratio(row.persistent().imbalance()));
    then += fmt::format("{}{} {}", separator, row.strategy(),
                        ratio(formula_imbalance(comparison, row, larger)));
  }
  if (now.empty()) return "Every rank keeps the same.";
  const std::string why = owners.empty() ? std::string()
                          : owners.size() == 1
                              ? " (" + owners[0] + "'s owners keep whole tensors)"
                              : " (owners under " + listing(owners) + " keep whole tensors)";
  return fmt::format(
      "The fullest rank keeps, x mean: {}; at W={}: {}{}. See it: {} --world {} "
      "--table full",
      now, larger, then, why, invocation.command, larger);
}

}  // namespace

std::vector<Paragraph> paragraphs(const Comparison& comparison, const Invocation& invocation) {
  std::vector<Paragraph> out = {{"Result", result_text(comparison)}};
  if (comparison.blocks.empty()) return out;
  const Block& block =
      *std::max_element(comparison.blocks.begin(), comparison.blocks.end(),
                        [](const Block& a, const Block& b) { return a.world_size < b.world_size; });
  if (first_right(block) == nullptr) return out;
  const auto parameters = static_cast<double>(comparison.model.parameter_count());
  const std::string which = comparison.blocks.size() > 1
                                ? block_title(comparison.request, block.rows.front().config) + ": "
                                : std::string();
  out.push_back({"Memory", which + memory_text(block, parameters)});
  out.push_back({"Traffic", which + traffic_text(block, parameters)});
  out.push_back({"Time", which + time_text(comparison, block, invocation)});
  out.push_back({"Balance", which + balance_text(comparison, block, invocation)});
  return out;
}

std::string to_text(const std::vector<Paragraph>& paragraphs, std::size_t width) {
  std::string out;
  for (const Paragraph& paragraph : paragraphs) {
    std::string head = fmt::format("{:<{}}", paragraph.topic, width);
    if (head.back() != ' ') head += ' ';
    out += wrapped(head, paragraph.text);
  }
  return out;
}

std::string plain_words(const Comparison& comparison, const Invocation& invocation) {
  return to_text(paragraphs(comparison, invocation), 9);
}

}  // namespace shardbench::bench

#include "bench/compare/plain_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/compare/format.h"
#include "bench/compare/screens.h"

namespace shardbench::bench {
namespace {

constexpr double kBytesPerElement = 4;  // fp32
constexpr double kGigabit = 1e9;

std::string line(const std::string& topic, const std::string& text) {
  return wrapped(fmt::format("{:<9}", topic), text);
}

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
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) {
      if (!row.right()) {
        text +=
            fmt::format("{} W={}: {}. ", row.strategy(), row.config.world_size, verdict_text(row));
      } else if (!row.traffic_error.empty()) {
        text +=
            fmt::format("{} W={}: {}. ", row.strategy(), row.config.world_size, row.traffic_error);
      }
    }
  }
  return text;
}

std::string result_text(const Comparison& comparison) {
  std::size_t right = 0;
  std::size_t all = 0;
  double distance = 0;
  bool bits = true;
  std::vector<std::string> hashes;
  for (const Block& block : comparison.blocks) {
    for (const Row& row : block.rows) {
      ++all;
      if (!row.right()) continue;
      ++right;
      bits = bits && row.parity.bit_equal;
      distance = std::max(distance, row.gradient_max_rel_diff);
      const std::string hash = fmt::format("{:016x}", row.parity.hash);
      if (std::find(hashes.begin(), hashes.end(), hash) == hashes.end()) hashes.push_back(hash);
    }
  }
  std::string text = wrong_text(comparison);
  if (right == 0) return text + "No row is right, so nothing is compared.";
  const std::string who = right < all ? fmt::format("{} of {} rows end", right, all)
                          : all == 1  ? std::string("The row ends")
                                      : fmt::format("All {} rows end", all);
  const std::string hash =
      hashes.size() == 1 ? "hash " + hashes.front()
                         : fmt::format("{} hashes, one per W and order of sums", hashes.size());
  return text + fmt::format(
                    "{} with the weights and optimizer state of one process doing the same "
                    "work{} ({}); step-1 gradients within {:.1e} of the whole batch at once.",
                    who, bits ? ", bit for bit" : "", hash, distance);
}

std::string memory_text(const Block& block, double parameters) {
  const train::OptimizerConfig& optimizer = first_right(block)->config.optimizer;
  const double per_parameter = kBytesPerElement * (2 + train::moments_of(optimizer));
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
      "Weights, gradients and {} state are {:.0f} bytes per parameter, {:.0f}/W = {} when cut. A "
      "rank "
      "keeps: {}. Activations stay whole: {}.",
      optimizer.kind == train::OptimizerKind::kAdamW ? "AdamW" : "SGD", per_parameter,
      per_parameter, short_number(per_parameter / block.world_size),
      joined(grouped(block, states), "; "), joined(grouped(block, activations), ", "));
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
      "A rank sends per step, in multiples of the weights ({} MiB): {} with f = (W-1)/W = {}",
      mib(kBytesPerElement * parameters), joined(grouped(block, multiple), ", "), ratio(f));
  const Row* ddp = nullptr;
  const Row* sharded = nullptr;
  for (const Row& row : block.rows) {
    if (!row.right()) continue;
    if (row.formula == sharding::FormulaKind::kDdp) ddp = &row;
    if (row.sharded()) sharded = &row;
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

std::string time_text(const Comparison& comparison, const Block& block,
                      const Invocation& invocation) {
  if (block.world_size == 1)
    return "One rank waits for nobody: the rows differ by their overheads only.";
  if (comparison.request.base.link) {
    const auto waits = [](const Row& row) {
      return fmt::format("{} of {} ms", ms(row.exposed().mean), ms(row.step.median));
    };
    return fmt::format("With the link {} a rank waits, per step: {}. Without it: {}{}",
                       comparison.request.base.link->to_string(),
                       joined(grouped(block, waits), ", "), invocation.command, invocation.world);
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
  bool owners = false;
  for (const Row& row : block.rows) {
    if (!row.right() || !row.sharded()) continue;
    owners = owners || row.formula == sharding::FormulaKind::kZero3;
    const char* separator = now.empty() ? "" : ", ";
    now += fmt::format("{}{} {}", separator, row.strategy(), ratio(row.persistent().imbalance()));
    then += fmt::format("{}{} {}", separator, row.strategy(),
                        ratio(formula_imbalance(comparison, row, larger)));
  }
  if (now.empty()) return "Every rank keeps the same.";
  return fmt::format(
      "The fullest rank keeps, x mean: {}; at W={}: {}{}. See it: {} --world {} "
      "--table full",
      now, larger, then, owners ? " (zero3's owners keep whole tensors)" : "", invocation.command,
      larger);
}

}  // namespace

std::string plain_words(const Comparison& comparison, const Invocation& invocation) {
  std::string out = line("Result", result_text(comparison));
  if (comparison.blocks.empty()) return out;
  const Block& block =
      *std::max_element(comparison.blocks.begin(), comparison.blocks.end(),
                        [](const Block& a, const Block& b) { return a.world_size < b.world_size; });
  if (first_right(block) == nullptr) return out;
  const auto parameters = static_cast<double>(comparison.model.parameter_count());
  const std::string which =
      comparison.blocks.size() > 1 ? fmt::format("W={}: ", block.world_size) : std::string();
  out += line("Memory", which + memory_text(block, parameters));
  out += line("Traffic", which + traffic_text(block, parameters));
  out += line("Time", which + time_text(comparison, block, invocation));
  out += line("Balance", which + balance_text(comparison, block, invocation));
  return out;
}

}  // namespace shardbench::bench

#include <fmt/format.h>

#include <map>
#include <utility>

#include "bench/compare/explain.h"
#include "bench/compare/format.h"

namespace shardbench::bench {
namespace {

/// Sums over ranks of one (phase, kind).
struct Sum {
  double calls = 0;
  double payload = 0;
  double algo = 0;
};
using Sums = std::map<std::pair<Phase, comm::CollectiveKind>, Sum>;

/// Means over ranks, `metrics` and barriers left out.
Sums means_of(const Row& row) {
  Sums sums;
  const auto ranks = static_cast<double>(row.ranks.size());
  for (const TrafficRow& entry : row.traffic) {
    if (entry.phase == Phase::kMetrics || entry.kind == comm::CollectiveKind::kBarrier) continue;
    Sum& sum = sums[{entry.phase, entry.kind}];
    sum.calls += static_cast<double>(entry.calls) / ranks;
    sum.payload += static_cast<double>(entry.payload_bytes) / ranks;
    sum.algo += static_cast<double>(entry.algo_bytes) / ranks;
  }
  return sums;
}

/// "forward all_gather 20.68 + backward all_gather 20.68".
template <typename ValueOf>
std::string added_up(const Sums& sums, ValueOf value_of) {
  std::string text;
  for (const auto& [key, sum] : sums) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : " + ", name_of(key.first),
                        comm::name_of(key.second), value_of(sum));
  }
  return text;
}

/// What travels in which dtype, where not all is fp32.
std::string travels_text(const train::RunConfig& config) {
  if (all_fp32(config)) return {};
  const DType weights = config.options.compute_dtype, gradients = config.options.reduce_dtype;
  return fmt::format(" Weights travel in {} ({} bytes each), gradients in {} ({}).",
                     name_of(weights), size_of(weights), name_of(gradients), size_of(gradients));
}

std::string sent_text(const Example& example) {
  const Row& row = *example.row;
  const int w = row.config.world_size;
  if (w == 1) return "One rank sends nothing.";
  const double sent = row.sent().mean;
  const double f = static_cast<double>(w - 1) / w;
  const double multiple = sent / (f * example.weights_bytes());
  return fmt::format(
      "Bytes that a rank sends in one step, by definition of the collectives, mean over ranks: {} "
      "= "
      "{}; that is {:.3g} x (W-1)/W x {} MiB of weights{} = {}.{}",
      added_up(means_of(row), [](const Sum& sum) { return mib(sum.algo); }), mib(sent), multiple,
      mib(example.weights_bytes()), example.in_fp32(), mib(multiple * f * example.weights_bytes()),
      travels_text(row.config));
}

std::string busbw_text(const Row& row) {
  for (const auto& [key, sum] : means_of(row)) {
    const double ns = row.kind_ns(key.first, key.second);
    if (ns <= 0 || sum.algo <= 0) continue;
    return fmt::format(
        "Algo bytes over the time from issue to completion (waits for peers and computing in "
        "between included), GB = 10^9 bytes: {} {} {:.0f} / {} ms = {}.",
        name_of(key.first), comm::name_of(key.second), sum.algo, ms(ns), figures(sum.algo / ns));
  }
  return "Algo bytes over the time from issue to completion, GB = 10^9 bytes.";
}

std::string payload_text(const Row& row) {
  for (const auto& [key, sum] : means_of(row)) {
    if (sum.calls <= 0) continue;
    return fmt::format("The full tensor of a call, mean: {} {} {} MiB / {:.0f} calls = {}.",
                       name_of(key.first), comm::name_of(key.second), mib(sum.payload), sum.calls,
                       mib(sum.payload / sum.calls));
  }
  return "The full tensor of a call, mean.";
}

}  // namespace

std::string explain_traffic(const Example& example, const std::string& key) {
  const Row& row = *example.row;
  if (key == "sent_mib") return sent_text(example);
  if (key == "sent_ratio") {
    if (example.baseline == nullptr) return "The baseline has no right row: a dash.";
    const double base = example.baseline->sent().mean;
    if (base <= 0) return "Nothing is sent: a dash.";
    return fmt::format("Sent over that of {}: {} / {} = {}.", example.baseline->strategy(),
                       mib(row.sent().mean), mib(base), ratio(row.sent().mean / base));
  }
  if (key == "bytes_as_formula") {
    return "yes: for every rank, phase and kind of call, in every repetition, bytes by definition "
           "of the calls issued = bytes counted where they are moved = bytes by formula.";
  }
  if (key == "calls") {
    return fmt::format(
        "Collectives that a rank issues in one step: {} = {}.",
        added_up(means_of(row), [](const Sum& sum) { return fmt::format("{:.0f}", sum.calls); }),
        row.peak_rank().calls);
  }
  if (key == "phase") return "The part of the step in which the calls are issued.";
  if (key == "kind") return "The collective.";
  if (key == "payload_per_call_mib") return payload_text(row);
  if (key == "algo_mib") return sent_text(example);
  if (key == "wire_mib") {
    return "Counted by the code that moves them: bytes that left the rank's memory for a peer.";
  }
  if (key == "formula_mib") {
    return "From shapes, W, units and options alone; no call is looked at.";
  }
  if (key == "diff_bytes") return "Algo - formula of the rank that is furthest off; 0 is right.";
  if (key == "busbw_gb_per_s") return busbw_text(row);
  return {};
}

}  // namespace shardbench::bench

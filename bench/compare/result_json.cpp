#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/compare/document.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

std::int64_t whole(double ns) { return std::llround(ns); }

json categories(const memory::CategoryBytes& bytes) {
  json out;
  for (int c = 0; c < memory::kCategoryCount; ++c) {
    out[std::string(name_of(static_cast<memory::Category>(c)))] =
        bytes[static_cast<std::size_t>(c)];
  }
  return out;
}

json spread_json(const Spread& spread) {
  return {{"min", spread.min}, {"mean", spread.mean}, {"max", spread.max}};
}

json step_json(const Summary& step) {
  json out = {
      {"median", whole(step.median)}, {"mean", whole(step.mean)}, {"stddev", whole(step.stddev)},
      {"min", whole(step.min)},       {"max", whole(step.max)},   {"p50", whole(step.p50)},
      {"p95", whole(step.p95)},       {"p99", whole(step.p99)},   {"times", step.times}};
  if (step.ci95_half >= 0) out["ci95_half"] = whole(step.ci95_half);
  return out;
}

/// Of the rank with the largest peak.
json memory_json(const Row& row) {
  const RankFigures& rank = row.peak_rank();
  const train::MemoryReport& memory = rank.memory;
  json out = categories(memory.peak_by_category);
  out["persistent"] = rank.persistent_bytes;
  out["padding"] = memory.padding;
  out["peak"] = memory.peak;
  out["first_step_peak"] = memory.first_step_peak;
  if (memory.init_peak > 0) out["init_peak"] = memory.init_peak;
  out["peak_phase"] = name_of(memory.peak_phase);
  out["peak_unit"] = memory.peak_unit;
  out["peak_rank"] = rank.rank;
  out["at_peak"] = categories(memory.at_peak);
  out["between_steps"] = categories(memory.between_steps);
  out["rss_start"] = memory.rss_start;
  out["rss_peak"] = memory.rss_peak;
  out["pss_peak"] = memory.pss_peak;
  out["formula_states"] = rank.formula.persistent();
  out["formula_padding"] = rank.formula.padding;
  return out;
}

json traffic_json(const Row& row) {
  json out = json::array();
  for (const TrafficRow& entry : row.traffic) {
    json item = {{"rank", entry.rank},
                 {"phase", name_of(entry.phase)},
                 {"kind", comm::name_of(entry.kind)},
                 {"calls", entry.calls},
                 {"payload_bytes", entry.payload_bytes},
                 {"algo_bytes", entry.algo_bytes},
                 {"formula_bytes", nullptr}};
    if (!entry.dtype.empty()) item["dtype"] = entry.dtype;
    if (entry.wire_counted()) {
      item["wire_bytes"] = entry.wire.sent;
      item["wire_received_bytes"] = entry.wire.received;
      item["staging_bytes"] = entry.wire.staging;
    }
    if (entry.formula_bytes) {
      item["formula_bytes"] = *entry.formula_bytes;
      item["formula_calls"] = entry.formula_calls;
    }
    out.push_back(std::move(item));
  }
  return out;
}

/// Of one step, by unit or bucket, mean over ranks.
json calls_json(const Row& row) {
  json out = json::array();
  for (const CallTotal& total : row.call_totals) {
    out.push_back({{"phase", name_of(total.phase)},
                   {"kind", comm::name_of(total.kind)},
                   {"label", total.label},
                   {"calls", total.calls},
                   {"payload_bytes", total.payload_bytes},
                   {"algo_bytes", total.algo_bytes},
                   {"time_ns", total.ns},
                   {"exposed_ns", total.exposed_ns}});
  }
  return out;
}

json per_rank_json(const Row& row) {
  json out = json::array();
  for (const RankFigures& rank : row.ranks) {
    json item = {{"rank", rank.rank},
                 {"pid", rank.pid},
                 {"persistent_bytes", rank.persistent_bytes},
                 {"state_bytes", rank.persistent_bytes},
                 {"padding_bytes", rank.memory.padding},
                 {"formula_persistent_bytes", rank.formula.persistent()},
                 {"formula_padding_bytes", rank.formula.padding},
                 {"peak_bytes", rank.memory.peak},
                 {"first_step_peak_bytes", rank.memory.first_step_peak},
                 {"at_peak", categories(rank.memory.at_peak)},
                 {"peak_phase", name_of(rank.memory.peak_phase)},
                 {"peak_unit", rank.memory.peak_unit},
                 {"rss_start_bytes", rank.memory.rss_start},
                 {"rss_peak_bytes", rank.memory.rss_peak},
                 {"pss_peak_bytes", rank.memory.pss_peak},
                 {"sent_bytes", rank.sent_bytes},
                 {"formula_sent_bytes", rank.formula_sent_bytes},
                 {"calls", rank.calls},
                 {"wait_ns", whole(rank.exposed_ns)},
                 {"peer_wait_ns", whole(rank.peer_wait_ns)},
                 {"comm_ns", whole(rank.comm_ns)}};
    if (rank.minor_faults >= 0) {
      item["minor_faults_per_step"] = whole(rank.minor_faults);
      item["system_allocations_per_step"] = whole(rank.system_allocations);
    }
    if (rank.memory.init_peak > 0) item["init_peak_bytes"] = rank.memory.init_peak;
    out.push_back(std::move(item));
  }
  return out;
}

json predicted_json(const Row& row, const sharding::ModelShape& model) {
  double sent = 0;
  std::int64_t persistent = 0;
  for (const RankFigures& rank : row.ranks) {
    sent += static_cast<double>(rank.formula_sent_bytes);
    persistent = std::max(persistent, rank.formula.persistent());
  }
  json out = {{"algo_bytes", sent / static_cast<double>(row.ranks.size())},
              {"persistent_bytes", persistent}};
  if (row.shards_parameters()) {
    const int prefetch =
        std::max(row.config.options.forward_prefetch, row.config.options.backward_prefetch);
    out["unsharded_bound_bytes"] =
        sharding::unsharded_bound_bytes(formula_input(row.config, model), prefetch);
  }
  return out;
}

json parity_json(const Row& row) {
  json out = {
      {"ok", row.parity.ok},
      {"bit_equal", row.parity.bit_equal},
      {"reference", "A: each rank's micro-batch by itself, summed in rank order, one process"},
      {"steps", row.config.warmup + row.config.steps},
      {"first_tensor", row.parity.first_tensor},
      {"detail", row.parity.detail}};
  if (row.whole_batch) out["grad_max_rel_diff"] = row.gradient_max_rel_diff;
  return out;
}

/// Step by step, so that a reader can tell repetitions (fresh ranks each) from steps.
json by_repetition_json(const Row& row) {
  json out = json::array();
  for (const RepetitionTimes& times : row.by_repetition) {
    out.push_back({{"times", times.step},
                   {"forward_ns", times.forward},
                   {"backward_ns", times.backward},
                   {"optimizer_ns", times.optimizer},
                   {"exposed_ns", times.exposed}});
  }
  return out;
}

void add_times(json& out, const Row& row, double peak_tflops) {
  out["iterations"] = row.step.times.size();
  out["step_time_ns"] = step_json(row.step);
  out["by_repetition"] = by_repetition_json(row);
  out["phase_time_ns"] = {{"forward", whole(row.forward_ns)},
                          {"backward", whole(row.backward_ns)},
                          {"optimizer", whole(row.optimizer_ns)}};
  out["comm_time_ns"] = whole(row.comm().mean);
  out["overlap_time_ns"] = whole(row.overlap().mean);
  out["exposed_time_ns"] = whole(row.exposed().mean);
  out["tokens_per_s"] = row.tokens_per_s;
  out["tokens_per_s_per_rank"] = row.tokens_per_s / row.config.world_size;
  out["samples_per_s"] = row.tokens_per_s / static_cast<double>(row.config.seq);
  out["flops_per_token"] = models::flops_per_token(row.config.model, row.config.seq);
  if (row.limit) {
    out["limit"] = {{"step_ns", whole(row.limit_ns())},
                    {"ratio", row.step.median / row.limit_ns()},
                    {"forward_ns", row.limit->forward_ns},
                    {"backward_ns", row.limit->backward_ns},
                    {"optimizer_ns_per_element", row.limit->optimizer_ns_per_element},
                    {"copied_bytes_per_ns", row.limit->copied_bytes_per_ns}};
  }
  if (peak_tflops > 0) out["mfu"] = row.utilization(peak_tflops);
}

void add_measured(json& out, const Row& row, const sharding::ModelShape& model) {
  out["memory_bytes"] = memory_json(row);
  out["traffic"] = traffic_json(row);
  out["calls"] = calls_json(row);
  out["traffic_ok"] = row.traffic_error.empty();
  if (!row.traffic_error.empty()) out["traffic_error"] = row.traffic_error;
  out["predicted"] = predicted_json(row, model);
  out["losses"] = row.losses;
  out["grad_norms"] = row.gradient_norms;
  if (!row.loss_scales.empty()) {
    out["loss_scales"] = row.loss_scales;
    out["skipped_steps"] = row.skipped_steps;
  }
  out["loss"] = {{"first", row.losses.front()},
                 {"last", row.losses.back()},
                 {"grad_norm_last", row.gradient_norms.back()}};
  if (!row.evaluation_losses.empty()) {
    out["evaluation"] = {{"steps", row.evaluation_steps}, {"losses", row.evaluation_losses}};
  }
  out["unused_parameters"] = row.unused_parameters;
  out["per_rank"] = per_rank_json(row);
  out["over_ranks"] = {{"persistent_bytes", spread_json(row.persistent())},
                       {"peak_bytes", spread_json(row.peak())},
                       {"sent_bytes", spread_json(row.sent())},
                       {"exposed_ns", spread_json(row.exposed())}};
  out["balance"] = {{"persistent", row.persistent().imbalance()},
                    {"peak", row.peak().imbalance()},
                    {"sent", row.sent().imbalance()}};
}

/// What this result has in place of the document's config.
json swept_json(const Request& request, const train::RunConfig& config) {
  json out = json::object();
  for (Axis axis : kAxes) {
    if (varies(request, axis)) set_axis(out, axis, config);
  }
  return out;
}

void add_relative(json& out, const Row& row, const Row& baseline) {
  json relative = {{"baseline", baseline.strategy()},
                   {"time", row.step.median / baseline.step.median},
                   {"peak", row.peak().max / baseline.peak().max}};
  if (baseline.sent().mean > 0) relative["sent"] = row.sent().mean / baseline.sent().mean;
  out["relative"] = std::move(relative);
}

}  // namespace

json result_json(const Request& request, const Row& row, const Row* baseline,
                 const sharding::ModelShape& model) {
  const train::RunConfig& config = row.config;
  const std::string name = result_name(request, config);
  json out = {{"name", name},
              {"run_name", name},
              {"strategy", row.strategy()},
              {"world_size", config.world_size},
              {"micro_batch", config.batch},
              {"global_batch", config.batch * config.accumulation * config.world_size},
              {"run_type", row.repetitions > 1 ? "aggregate" : "iteration"},
              {"repetitions", row.repetitions},
              {"skipped", false},
              {"error_occurred", !row.right() || !row.traffic_error.empty()},
              {"error_message", row.right() ? row.traffic_error : row.reason}};
  if (row.repetitions > 1) out["aggregate_name"] = "median";
  if (row.repetitions == 1) out["repetition_index"] = 0;
  const json swept = swept_json(request, config);
  if (!swept.empty()) out["config"] = swept;
  if (!row.measured()) return out;
  add_measured(out, row, model);
  // No time without a right answer.
  if (row.right()) add_times(out, row, request.peak_tflops);
  if (row.right() && baseline != nullptr) add_relative(out, row, *baseline);
  if (row.judged) {
    out["parity"] = parity_json(row);
    out["parameter_hash"] = fmt::format("{:016x}", row.parity.hash);
  }
  return out;
}

}  // namespace shardbench::bench

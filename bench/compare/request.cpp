#include "bench/compare/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/core/format.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::bench {
namespace {

/// The values of an axis in the order in which the request goes through them.
std::string values_text(const Request& request, Axis axis, const std::string& separator = ",") {
  std::vector<std::string> values;
  for (const train::RunConfig& config : blocks_of(request)) {
    const std::string value = axis_value(axis, config);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return fmt::format("{}", fmt::join(values, separator));
}

}  // namespace

train::RunConfig config_for(const Request& request, const std::string& strategy, int world_size) {
  train::RunConfig config = request.base;
  config.strategy = strategy;
  config.world_size = world_size;
  if (!request.global_batch) return config;
  const std::int64_t part = static_cast<std::int64_t>(world_size) * config.accumulation;
  const std::int64_t whole = *request.global_batch;
  if (whole < part || whole % part != 0) {
    const std::int64_t below = whole / part * part;
    const std::string nearest =
        below == 0 ? std::to_string(part) : fmt::format("{} or {}", below, below + part);
    throw UserError::format(
        "--global-batch {}: not divisible by {} ({} ranks x {} micro-batches); nearest: {}", whole,
        part, world_size, config.accumulation, nearest);
  }
  config.batch = whole / part;
  return config;
}

sharding::FormulaInput formula_input(const train::RunConfig& config,
                                     const sharding::ModelShape& model) {
  sharding::FormulaInput input;
  input.model = &model;
  input.units = config.options.units;
  input.world_size = config.world_size;
  input.accumulation = config.accumulation;
  using From = train::Reshard;
  using To = sharding::FormulaInput::Reshard;
  const From reshard = config.options.reshard_after_forward;
  input.reshard_after_forward =
      reshard == From::kTrue ? To::kTrue : (reshard == From::kFalse ? To::kFalse : To::kAuto);
  input.bucket_cap_mib = config.options.bucket_cap_mib;
  input.first_bucket_mib = config.options.first_bucket_mib;
  input.optimizer_moments = train::moments_of(config.optimizer);
  input.compute_dtype = config.options.compute_dtype;
  input.reduce_dtype = config.options.reduce_dtype;
  input.in_place = config.options.collectives == train::CollectiveMode::kInPlace;
  input.sparse_embedding = config.options.sparse_embedding;
  input.tokens = config.batch * config.seq;
  input.optimizer_in_backward = config.options.optimizer_in_backward;
  return input;
}

std::int64_t tokens_per_step(const train::RunConfig& config) {
  return config.batch * config.seq * config.accumulation * config.world_size;
}

std::string to_string(train::Reshard reshard) {
  switch (reshard) {
    case train::Reshard::kTrue:
      return "true";
    case train::Reshard::kFalse:
      return "false";
    case train::Reshard::kAuto:
      return "auto";
  }
  return "?";
}

std::string backend_of(const Request& request, int world_size) {
  const std::string& backend = request.base.backend;
  if (backend != "auto" && backend != "shm") return backend;
  return world_size == 1 ? "local" : "shm";
}

bool all_fp32(const train::RunConfig& config) {
  return config.options.compute_dtype == DType::kFloat32 &&
         config.options.reduce_dtype == DType::kFloat32;
}

std::string precision_text(const train::RunConfig& config) {
  if (all_fp32(config)) return "fp32";
  std::string text = fmt::format("{} (reduce {})", name_of(config.options.compute_dtype),
                                 name_of(config.options.reduce_dtype));
  if (config.loss_scale) text += ", loss scale " + config.loss_scale->to_string();
  return text;
}

std::string context_line(const Request& request, const sharding::ModelShape& model,
                         const std::vector<int>& worlds) {
  SHARDBENCH_CHECK(!worlds.empty());
  const train::RunConfig& base = request.base;
  std::string batch = request.global_batch
                          ? fmt::format("global batch {}", *request.global_batch)
                          : fmt::format("batch {}/rank", values_text(request, Axis::kBatch));
  if (base.accumulation > 1) batch += fmt::format(" x {} micro-batches", base.accumulation);
  const bool many = std::any_of(worlds.begin(), worlds.end(), [](int w) { return w > 1; });
  const bool one = std::any_of(worlds.begin(), worlds.end(), [](int w) { return w == 1; });
  std::string backend = backend_of(request, many ? 2 : 1);
  if (many && one) backend += " (W=1: local)";
  if (base.device == train::DeviceKind::kCuda) backend += " on GPUs";
  std::string link = base.link ? "link " + base.link->to_string() : std::string("no link");
  if (varies(request, Axis::kLink)) link = "links " + values_text(request, Axis::kLink, " and ");
  if (base.comm_thread) link += ", comm thread";
  std::string line =
      fmt::format("{}: {} params, W={}, {}, seq {}, {}, units {}, {}, {}", base.model.name,
                  format_count(model.parameter_count()), fmt::join(worlds, ","), batch, base.seq,
                  precision_text(base), values_text(request, Axis::kUnits), backend, link);
  if (varies(request, Axis::kPrefetch)) {
    line += ", prefetch " + values_text(request, Axis::kPrefetch);
  }
  if (varies(request, Axis::kBucketCap)) {
    line += ", buckets of " + values_text(request, Axis::kBucketCap) + " MiB";
  }
  if (base.options.init != train::InitMode::kDeferred) {
    line += ", init " + train::to_string(base.options.init);
  }
  if (base.options.collectives != train::CollectiveMode::kDirect) {
    line += ", collectives " + train::to_string(base.options.collectives);
  }
  if (base.options.sparse_embedding) line += ", sparse embedding";
  if (base.options.optimizer_in_backward) line += ", optimizer in backward";
  return line;
}

std::string oversized_unit(const train::RunConfig& config, const sharding::ModelShape& model) {
  const auto all = static_cast<double>(model.parameter_count());
  for (const sharding::UnitShape& unit : sharding::plan_units(model, config.options.units)) {
    std::int64_t elements = 0;
    for (int p : unit.parameters) {
      elements += model.parameters[static_cast<std::size_t>(p)].numel();
    }
    const double share = static_cast<double>(elements) / all;
    if (share > 0.5) {
      return fmt::format("unit '{}' holds {:.0f} % of the weights", unit.name, share * 100);
    }
  }
  return {};
}

}  // namespace shardbench::bench

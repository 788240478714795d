#include "bench/compare/document.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/compare/peer_json.h"
#include "bench/compare/screens.h"
#include "bench/compare/tuning.h"
#include "common/core/build_info.h"
#include "common/core/dtype.h"
#include "common/core/machine_info.h"
#include "common/core/simd.h"
#include "common/models/model_file.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

json environment() {
  json env = json::object();
  for (const char* name :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "OMP_PROC_BIND", "LD_PRELOAD",
        "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "SHARDBENCH_DATA_DIR"}) {
    if (const char* value = std::getenv(name)) env[name] = value;
  }
  return env;
}

json peers_json(const Comparison& comparison) {
  json out = json::array();
  for (const Block& block : comparison.blocks) {
    for (const PeerRow& peer : block.peers) {
      out.push_back(peer_json(peer, block.rows.front().config, counterpart_row(block, peer)));
    }
  }
  return out;
}

json caches_json(const MachineInfo& machine) {
  json caches = json::array();
  for (const CacheInfo& cache : machine.caches) {
    caches.push_back({{"type", cache.type},
                      {"level", cache.level},
                      {"size", cache.size},
                      {"num_sharing", cache.num_sharing}});
  }
  return caches;
}

/// Every axis that varies with its values, in the order in which they ran.
json sweep_json(const Request& request) {
  json out = json::object();
  for (Axis axis : kAxes) {
    if (!varies(request, axis)) continue;
    json values = json::array();
    for (const train::RunConfig& job : blocks_of(request)) {
      json one;
      set_axis(one, axis, job);
      if (std::find(values.begin(), values.end(), one.front()) == values.end()) {
        values.push_back(one.front());
      }
    }
    json key;
    set_axis(key, axis, request.base);
    out[key.begin().key()] = std::move(values);
  }
  return out;
}

}  // namespace

json context_json(const Request& request, const DocumentContext& context) {
  const MachineInfo machine = machine_info();
  const BuildInfo build = build_info();
  const train::RunConfig& base = request.base;
  json out = {{"date", machine.date},
              {"host_name", machine.host_name},
              {"executable", context.executable},
              {"version", build.version},
              {"git_sha", build.git_sha},
              {"build_type", build.build_type},
              {"compiler", build.compiler},
              {"torch_version", context.torch_version},
              {"cpu_model", machine.cpu_model},
              {"num_cpus", machine.num_cpus},
              {"mhz_per_cpu", machine.mhz_per_cpu},
              {"caches", caches_json(machine)},
              {"memory_bytes", machine.memory_bytes},
              {"load_avg", machine.load_avg},
              {"kernel", machine.kernel},
              {"device", train::to_string(base.device)},
              {"backend", backend_of(request, request.worlds == std::vector<int>{1} ? 1 : 2)},
              {"world_size", request.worlds},
              {"threads_per_rank", base.threads},
              {"simd", name_of(simd_width())},
              {"args", context.args},
              {"env", environment()},
              {"seed", base.seed},
              {"deterministic", base.deterministic},
              {"json_schema_version", 1}};
  if (base.link) {
    out["link"] = {{"latency_ns", base.link->latency.count()},
                   {"bandwidth_bytes_per_s", base.link->bytes_per_second}};
  }
  for (const auto& [key, value] : context.extra) {
    if (!out.contains(key)) out[key] = value;
  }
  return out;
}

std::vector<std::string> own_context_keys() {
  Request request;
  request.worlds = {1};
  request.base.link.emplace();
  std::vector<std::string> keys;
  const json context = context_json(request, {});
  for (const auto& item : context.items()) keys.push_back(item.key());
  return keys;
}

void set_axis(json& config, Axis axis, const train::RunConfig& job) {
  const train::StrategyOptions& options = job.options;
  switch (axis) {
    case Axis::kBatch:
      config["micro_batch"] = job.batch;
      break;
    case Axis::kUnits:
      config["units"] = options.units.to_string();
      break;
    case Axis::kPrefetch:
      config["prefetch"] = {{"forward", options.forward_prefetch},
                            {"backward", options.backward_prefetch}};
      break;
    case Axis::kLink:
      config["link"] = job.link ? json(job.link->LinkSpeed::to_string()) : json("none");
      if (job.link && job.link->hosts) {
        config["link_inter"] = {{"link", job.link->hosts->speed.to_string()},
                                {"ranks_per_host", job.link->hosts->ranks_per_host}};
      }
      break;
    case Axis::kBucketCap:
      config["bucket_cap_mib"] = options.bucket_cap_mib;
      config["bucket_bytes"] =
          static_cast<std::int64_t>(std::llround(options.bucket_cap_mib * 1024 * 1024));
      break;
  }
}

json config_json(const Request& request, const sharding::ModelShape& model) {
  const train::RunConfig& base = request.base;
  const std::string fp32(name_of(DType::kFloat32));
  const std::string compute(name_of(base.options.compute_dtype));
  const bool adamw = base.optimizer.kind == train::OptimizerKind::kAdamW;
  json optimizer = {{"name", adamw ? "adamw" : "sgd"},
                    {"lr", base.optimizer.lr},
                    {"lr_warmup", base.optimizer.lr_warmup},
                    {"weight_decay", base.optimizer.weight_decay}};
  if (adamw) {
    optimizer["beta1"] = base.optimizer.beta1;
    optimizer["beta2"] = base.optimizer.beta2;
    optimizer["eps"] = base.optimizer.eps;
  } else {
    optimizer["momentum"] = base.optimizer.momentum;
  }
  json shape = models::model_json(base.model);
  shape["params"] = model.parameter_count();
  shape["seq"] = base.seq;
  json out = {{"model", std::move(shape)},
              {"accumulation", base.accumulation},
              {"max_norm", base.max_norm},
              {"optimizer", optimizer},
              {"recipe",
               {{"param_dtype", compute},
                {"gather_dtype", compute},
                {"reduce_dtype", name_of(base.options.reduce_dtype)},
                {"grad_dtype", fp32},
                {"master_dtype", fp32},
                {"state_dtype", fp32}}},
              {"reshard_after_forward", to_string(base.options.reshard_after_forward)},
              {"init", train::to_string(base.options.init)},
              {"collectives", train::to_string(base.options.collectives)},
              {"data", base.data},
              {"warmup", base.warmup},
              {"steps", base.steps},
              {"repetitions", request.repetitions},
              {"timeout_s", base.timeout_s},
              {"comm_thread", base.comm_thread},
              {"tuning", tuning_json(base.tuning)}};
  if (base.options.sparse_embedding) out["sparse_embedding"] = true;
  if (base.options.optimizer_in_backward) out["optimizer_in_backward"] = true;
  if (base.loss_scale) out["loss_scale"] = base.loss_scale->to_string();
  if (base.inject) out["inject"] = base.inject->text;
  if (request.limit) out["limit"] = true;
  if (request.peak_tflops > 0) out["peak_tflops_per_rank"] = request.peak_tflops;
  for (Axis axis : kAxes) {
    if (axis != Axis::kBatch || !request.global_batch) set_axis(out, axis, base);
  }
  if (!request.peers.empty()) out["peers"] = request.peers;
  if (request.global_batch) out["global_batch"] = *request.global_batch;
  const json swept = sweep_json(request);
  if (!swept.empty()) out["sweep"] = swept;
  return out;
}

json document(const Comparison& comparison, const DocumentContext& context) {
  json results = json::array();
  for (const Block& block : comparison.blocks) {
    const Row* baseline = baseline_row(comparison, block);
    for (const Row& row : block.rows) {
      json result = result_json(comparison.request, row, baseline, comparison.model);
      if (row.right() && row.judged)
        result["parity"]["parameter_rel_distance"] = block.reference_distance;
      results.push_back(std::move(result));
    }
  }
  json out = {{"schema_version", 1},
              {"context", context_json(comparison.request, context)},
              {"config", config_json(comparison.request, comparison.model)},
              {"results", std::move(results)}};
  if (!comparison.request.peers.empty()) out["peers"] = peers_json(comparison);
  out["okay"] = exit_code(comparison) == 0;
  return out;
}

}  // namespace shardbench::bench

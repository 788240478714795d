#include "bench/compare/read_document.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "bench/compare/peer_json.h"
#include "bench/compare/read_row.h"
#include "common/core/error.h"
#include "common/models/fields.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

models::ModelConfig read_model(const json& stored) {
  models::ModelConfig model;
  const std::string name = stored.at("name");
  const std::vector<std::string> presets = models::preset_names();
  if (std::find(presets.begin(), presets.end(), name) != presets.end()) {
    model = models::preset(name);
  }
  model.name = name;
  if (stored.contains("family")) {
    const std::vector<std::string>& families = models::family_names();
    const auto family = std::find(families.begin(), families.end(), stored.at("family"));
    if (family == families.end()) {
      throw UserError::format("unknown model family {}", stored.at("family").dump());
    }
    model.family = static_cast<models::Family>(family - families.begin());
  }
  for (const models::Field& field : models::fields()) {
    if (!stored.contains(field.key)) continue;
    std::visit([&](auto member) { stored.at(field.key).get_to(model.*member); }, field.member);
  }
  return model;
}

/// Changes a job by what a config, the document's or a result's, says of the axes.
void read_axes(const json& config, train::RunConfig& job) {
  train::StrategyOptions& options = job.options;
  if (config.contains("micro_batch")) job.batch = config.at("micro_batch");
  if (config.contains("units")) {
    options.units = sharding::UnitPolicy::parse(config.at("units").get<std::string>());
  }
  if (config.contains("prefetch")) {
    options.forward_prefetch = config.at("prefetch").at("forward");
    options.backward_prefetch = config.at("prefetch").at("backward");
  }
  if (config.contains("link")) {
    job.link = read_link(config.at("link"));
    if (job.link && config.contains("link_inter")) {
      const json& hosts = config.at("link_inter");
      job.link->hosts =
          comm::HostLink{comm::LinkSpeed::parse(hosts.at("link")), hosts.at("ranks_per_host")};
    }
  }
  if (config.contains("bucket_cap_mib")) {
    options.bucket_cap_mib = config.at("bucket_cap_mib");
  } else if (config.contains("bucket_bytes")) {
    options.bucket_cap_mib = config.at("bucket_bytes").get<double>() / (1024 * 1024);
  }
}

train::Reshard read_reshard(const std::string& text) {
  for (train::Reshard when : {train::Reshard::kTrue, train::Reshard::kFalse}) {
    if (to_string(when) == text) return when;
  }
  return train::Reshard::kAuto;
}

train::OptimizerConfig read_optimizer(const json& stored) {
  train::OptimizerConfig optimizer;
  if (stored.at("name") == "sgd") optimizer.kind = train::OptimizerKind::kSgd;
  optimizer.lr = stored.value("lr", optimizer.lr);
  return optimizer;
}

DType read_dtype(const json& recipe, const char* key) {
  const std::string name = recipe.value(key, "fp32");
  for (const DType known : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name_of(known) == name) return known;
  }
  throw UserError::format("recipe: unknown {} {}", key, name);
}

void read_precision(const json& config, train::RunConfig& base) {
  const json recipe = config.value("recipe", json::object());
  base.options.compute_dtype = read_dtype(recipe, "param_dtype");
  base.options.reduce_dtype = read_dtype(recipe, "reduce_dtype");
  if (config.contains("loss_scale")) {
    base.loss_scale = train::LossScale::parse(config.at("loss_scale").get<std::string>());
  }
}

train::RunConfig read_base(const json& config, const json& context) {
  train::RunConfig base;
  base.model = read_model(config.at("model"));
  models::validate(base.model);
  base.seq = config.at("model").at("seq");
  base.warmup = config.at("warmup");
  base.steps = config.at("steps");
  base.accumulation = config.value("accumulation", 1);
  base.max_norm = config.value("max_norm", 0.0);
  base.optimizer = read_optimizer(config.at("optimizer"));
  read_precision(config, base);
  base.options.reshard_after_forward = read_reshard(config.at("reshard_after_forward"));
  if (config.contains("init")) base.options.init = train::parse_init(config.at("init"));
  if (config.contains("collectives")) {
    base.options.collectives = train::parse_collectives(config.at("collectives"));
  }
  base.options.sparse_embedding = config.value("sparse_embedding", false);
  base.options.optimizer_in_backward = config.value("optimizer_in_backward", false);
  base.data = config.value("data", "");
  base.seed = context.value("seed", base.seed);
  base.deterministic = context.value("deterministic", false);
  base.threads = context.value("threads_per_rank", 1);
  base.comm_thread = config.value("comm_thread", false);
  if (context.contains("link")) {
    const json& link = context.at("link");
    base.link = comm::LinkModel{
        {link.at("bandwidth_bytes_per_s"), std::chrono::nanoseconds(link.at("latency_ns"))}};
  }
  read_axes(config, base);
  return base;
}

Sweep read_sweep(const json& config) {
  Sweep sweep;
  if (!config.contains("sweep")) return sweep;
  for (const auto& [key, values] : config.at("sweep").items()) {
    for (const json& value : values) {
      train::RunConfig job;
      read_axes(json{{key, value}}, job);
      if (key == "micro_batch") sweep.batches.push_back(job.batch);
      if (key == "units") sweep.units.push_back(job.options.units);
      if (key == "prefetch") sweep.prefetches.push_back(job.options.forward_prefetch);
      if (key == "link") sweep.links.push_back(job.link);
      if (key == "bucket_cap_mib") sweep.bucket_caps_mib.push_back(job.options.bucket_cap_mib);
    }
  }
  return sweep;
}

/// Adds a value to a list unless it stands there.
template <typename Value>
void add_once(std::vector<Value>& list, const Value& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

train::RunConfig job_of(const json& result, const train::RunConfig& base) {
  train::RunConfig job = base;
  job.strategy = result.at("strategy");
  job.world_size = result.at("world_size");
  if (job.world_size < 1 || job.world_size > 64) {
    throw UserError::format("world_size {} is not possible", job.world_size);
  }
  job.batch = result.value("micro_batch", job.batch);
  if (result.contains("config")) read_axes(result.at("config"), job);
  return job;
}

/// Rows of the same job, but for the strategy, are a block; blocks stand in the document's order.
void add_results(const json& results, Comparison& comparison, const train::Registry& registry) {
  const std::vector<Axis> axes(kAxes.begin(), kAxes.end());
  std::map<std::string, std::size_t> places;
  for (const json& result : results) {
    const train::RunConfig job = job_of(result, comparison.request.base);
    const sharding::FormulaKind kind = registry.find(job.strategy).formula;
    const auto [place, is_new] = places.try_emplace(
        fmt::format("{};{}", job.world_size, values_of(axes, job)), comparison.blocks.size());
    if (is_new) comparison.blocks.push_back({job.world_size, {}, 0, {}});
    Block& block = comparison.blocks[place->second];
    block.rows.push_back(read_row(result, job, kind, comparison.model));
    if (result.contains("parity")) {
      block.reference_distance = result.at("parity").value("parameter_rel_distance", 0.0);
    }
    add_once(comparison.request.strategies, job.strategy);
    add_once(comparison.request.worlds, job.world_size);
  }
}

/// Each to the block with its world size and batch: nothing else is swept where there are peers.
void add_peers(const json& peers, Comparison& comparison) {
  for (const json& stored : peers) {
    const int world_size = stored.at("world_size");
    const std::int64_t batch = stored.at("micro_batch");
    const auto block = std::find_if(comparison.blocks.begin(), comparison.blocks.end(),
                                    [&](const Block& candidate) {
                                      const train::RunConfig& job = candidate.rows.front().config;
                                      return job.world_size == world_size && job.batch == batch;
                                    });
    if (block == comparison.blocks.end()) {
      throw UserError::format("peer {} stands beside no result", stored.at("peer").dump());
    }
    block->peers.push_back(read_peer(stored, block->rows.front().config));
    add_once(comparison.request.peers, block->peers.back().peer);
  }
}

StoredResults read(const json& document, const train::Registry& registry) {
  if (!document.is_object() || !document.contains("schema_version")) {
    throw UserError("no result file: schema_version is missing");
  }
  if (document.at("schema_version") != 1) {
    throw UserError::format(
        "schema {}, but this program reads schema 1; use the version that "
        "wrote it",
        document.at("schema_version").dump());
  }
  StoredResults stored;
  stored.context = document.at("context");
  stored.okay = document.at("okay");
  const json& config = stored.config = document.at("config");
  Comparison& comparison = stored.comparison;
  Request& request = comparison.request;
  if (stored.context.contains("args")) stored.context.at("args").get<std::vector<std::string>>();
  request.base = read_base(config, stored.context);
  if (request.base.accumulation < 1) throw UserError("accumulation must be at least 1");
  request.sweep = read_sweep(config);
  request.repetitions = config.value("repetitions", 1);
  request.limit = config.value("limit", false);
  request.peak_tflops = config.value("peak_tflops_per_rank", 0.0);
  if (config.contains("global_batch")) request.global_batch = config.at("global_batch");
  comparison.model = models::shape_of(request.base.model);
  comparison.cores = stored.context.value("num_cpus", 0);
  add_results(document.at("results"), comparison, registry);
  if (comparison.blocks.empty()) throw UserError("it holds no results");
  if (document.contains("peers")) add_peers(document.at("peers"), comparison);
  return stored;
}

}  // namespace

StoredResults read_document(const std::string& text, const std::string& name,
                            const train::Registry& registry) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& error) {
    throw UserError::format("{}: no JSON, or cut short (stops making sense at byte {} of {})", name,
                            error.byte, text.size());
  }
  try {
    return read(document, registry);
  } catch (const UserError& error) {
    throw UserError::format("{}: {}", name, error.what());
  } catch (const json::exception& error) {
    throw UserError::format("{}: not as compare writes it: {}", name, error.what());
  } catch (const InvariantError& error) {
    throw UserError::format("{}: its figures do not fit together: {}", name, error.what());
  }
}

StoredResults read_document_file(const std::string& path, const train::Registry& registry) {
  std::error_code ignored;  // a folder opens, and throws when it is read
  std::ifstream file;
  if (!std::filesystem::is_directory(path, ignored)) file.open(path, std::ios::binary);
  if (!file.is_open()) {
    throw UserError::format("{}: cannot be read; give a file that --out or --format json wrote",
                            path);
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return read_document(text, path, registry);
}

}  // namespace shardbench::bench

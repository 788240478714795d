#include "bench/peers/training.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/compare/peer_json.h"
#include "common/core/error.h"
#include "common/core/safetensors.h"
#include "common/data/sampler.h"
#include "common/models/fields.h"
#include "common/models/model_file.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

/// All of the run's micro-batches: "tokens" [step x micro x rank, 2 (tokens, targets), batch, seq].
void write_tokens(const train::RunConfig& config, const std::string& path) {
  const auto source = data::open_source(config.data, config.seed, config.model.vocab);
  const data::Sampler sampler(*source, config.seed,
                              {config.world_size, config.batch, config.accumulation, config.seq});
  const std::int64_t batches =
      static_cast<std::int64_t>(config.all_steps()) * config.accumulation * config.world_size;
  SafetensorsWriter writer(path, {{"tokens", "I32", {batches, 2, config.batch, config.seq}}});
  const auto numbers = static_cast<std::size_t>(config.batch * config.seq);
  std::vector<std::int64_t> drawn(2 * numbers);
  for (int step = 0; step < config.all_steps(); ++step) {
    for (int micro = 0; micro < config.accumulation; ++micro) {
      for (int rank = 0; rank < config.world_size; ++rank) {
        sampler.fill(step, micro, rank, drawn.data(), drawn.data() + numbers);
        const std::vector<std::int32_t> narrow(drawn.begin(), drawn.end());
        writer.write(narrow.data(), narrow.size() * sizeof(std::int32_t));
      }
    }
  }
  writer.finish();
}

/// The modules that FSDP wraps, by path, the root aside: those of our units, or
/// blocks. A head in parts is whole in a peer's model.
json wrapped_modules(const PeerKind& kind, const train::RunConfig& config) {
  models::ModelConfig whole = config.model;
  whole.split_head = models::ModelConfig{}.split_head;
  const sharding::ModelShape shape = models::shape_of(whole);
  const auto units =
      sharding::plan_units(shape, kind.by_blocks ? sharding::UnitPolicy{} : config.options.units);
  json paths = json::array();
  for (const sharding::UnitShape& unit : units) {
    if (unit.anchor != 0) paths.push_back(shape.modules[unit.anchor].path);
  }
  return paths;
}

/// What train.py reads.
json work_of(const PeerKind& kind, const train::RunConfig& config) {
  const train::OptimizerConfig& optimizer = config.optimizer;
  json rates = json::array();
  for (int step = 0; step < config.all_steps(); ++step) {
    rates.push_back(train::learning_rate(optimizer, step));
  }
  return {{"peer", kind.name},
          {"framework", kind.framework},
          {"model", models::model_json(config.model)},
          {"world_size", config.world_size},
          {"threads", config.threads},
          {"micro_batch", config.batch},
          {"seq", config.seq},
          {"accumulation", config.accumulation},
          {"max_norm", config.max_norm},
          {"dtype", name_of(config.options.compute_dtype)},
          {"optimizer",
           {{"name", "adamw"},
            {"beta1", optimizer.beta1},
            {"beta2", optimizer.beta2},
            {"eps", optimizer.eps},
            {"weight_decay", optimizer.weight_decay}}},
          {"lr", std::move(rates)},
          {"units", wrapped_modules(kind, config)},
          {"reshard_after_forward", to_string(config.options.reshard_after_forward)},
          {"bucket_cap_mib", config.options.bucket_cap_mib},
          {"device", "cpu"},
          {"timeout_s", config.timeout_s}};
}

/// "step 12" -> 12; 0 for another line.
int step_of(std::string_view line) {
  constexpr std::string_view kStep = "step ";
  if (!line.starts_with(kStep)) return 0;
  line.remove_prefix(kStep.size());
  int step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc{} && end == line.data() + line.size() ? step : 0;
}

void read_result(const std::string& text, PeerRun& run) {
  try {
    const json result = json::parse(text);
    for (const json& rank : result.at("per_rank")) run.ranks.push_back(read_peer_rank(rank));
    result.at("versions").get_to(run.versions);
  } catch (const json::exception& error) {
    run.ranks.clear();
    run.failure = unusable_result(error.what());
  }
}

PeerRun stopped(comm::AbortRecord failure, int signal) {
  PeerRun run;
  run.failure = std::move(failure);
  run.signal = signal;
  return run;
}

}  // namespace

void refuse_unknown_to_peers(const Request& request) {
  const train::RunConfig& base = request.base;
  if (base.model.family == models::Family::kConvnet) {
    throw UserError::format(
        "--peers: {} is of family convnet, which peers do not know; they know gpt2, llama and mlp",
        base.model.name);
  }
  const auto refuse = [](bool wrong, const char* what, const char* instead) {
    if (wrong) throw UserError::format("--peers: peers have no {}; {}", what, instead);
  };
  refuse(base.model.dropout > 0, "dropout with our random numbers", "take --dropout 0");
  refuse(base.optimizer.kind != train::OptimizerKind::kAdamW, "SGD to compare with",
         "take --optimizer adamw");
  refuse(base.options.compute_dtype == DType::kFloat16, "fp16 with our loss scale",
         "take --dtype bf16");
  refuse(base.options.reduce_dtype != DType::kFloat32, "narrow reductions on Gloo",
         "take --reduce-dtype fp32");
  refuse(base.link || varies(request, Axis::kLink), "emulated network", "leave --link out");
  refuse(varies(request, Axis::kUnits), "sweep of units", "give one --units");
  refuse(base.options.units.kind == sharding::UnitPolicy::Kind::kTensor,
         "units smaller than a module", "take --units block, whole, size:N or class:NAME");
  refuse(varies(request, Axis::kPrefetch), "prefetch depth to set", "give one --prefetch");
  refuse(varies(request, Axis::kBucketCap), "sweep of buckets", "give one --bucket-cap-mib");
  refuse(base.inject && base.inject->kind == train::Injection::Kind::kShort, "data that end early",
         "leave --inject short out");
  for (const int world_size : request.worlds) {
    const std::string backend = backend_of(request, world_size);
    refuse(backend != "shm" && backend != "local", "ranks on other backends", "take --backend shm");
  }
}

PeerTrainer::PeerTrainer(PeerTools tools, WriteWeights write_weights)
    : tools_(std::move(tools)), write_weights_(std::move(write_weights)) {}

WeightsError PeerTrainer::ensure_weights(const train::RunConfig& config) {
  if (weights_) return {};
  weights_.emplace();
  WeightsError error = write_weights_(config, weights_->path());
  if (!error.text.empty()) weights_.reset();
  return error;
}

void PeerTrainer::ensure_tokens(const train::RunConfig& config) {
  const std::string work = fmt::format("{} ranks, batch {}", config.world_size, config.batch);
  if (tokens_ && tokens_of_ == work) return;
  tokens_.emplace();
  write_tokens(config, tokens_->path());
  tokens_of_ = work;
}

PeerRun PeerTrainer::run(const PeerKind& kind, const train::RunConfig& config,
                         const train::Progress& progress) {
  if (!tools_.has_python()) return stopped(not_installed(tools_, kind.framework), 0);
  const WeightsError error = ensure_weights(config);
  if (!error.text.empty()) {
    return stopped(unusable_result("no initial weights: " + error.text), error.signal);
  }
  ensure_tokens(config);
  json work = work_of(kind, config);
  work["weights"] = weights_->path();
  work["tokens"] = tokens_->path();
  const UnnamedFile file;
  std::ofstream(file.path()) << work.dump();

  std::string result;
  ChildRequest request;
  request.command = {tools_.python, (tools_.scripts / "train.py").string(), file.path()};
  request.environment = {{"OMP_NUM_THREADS", std::to_string(config.threads)}};
  request.silence = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * config.timeout_s));
  request.on_line = [&](const std::string& line) {
    if (line.starts_with("result ")) result = line.substr(7);
    const int step = step_of(line);
    if (step > 0 && progress) progress(step, config.all_steps());
    return step > 0;
  };
  const ChildOutcome outcome = run_child(request);
  if (!outcome.well()) return stopped(failure_of(outcome, kind.framework), outcome.signal);
  PeerRun run;
  if (result.empty()) {
    run.failure = unusable_result("it ended well without one");
  } else {
    read_result(result, run);
  }
  return run;
}

}  // namespace shardbench::bench

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "bench/cli/flags.h"
#include "bench/compare/peer.h"
#include "common/comm/comm_thread.h"
#include "common/core/error.h"
#include "common/models/config.h"
#include "common/models/convnet_stages.h"
#include "common/sharding/unit_plan.h"
#include "common/train/device_rules.h"

namespace shardbench::cli {
namespace {

constexpr std::int64_t kDefaultBatch = 4;
constexpr std::int64_t kDefaultSeq = 128;

std::int64_t sequence_length(const Flags& flags, const models::ModelConfig& model) {
  if (const std::int64_t fixed = models::fixed_seq(model); fixed > 0) {
    if (flags.seq.value_or(fixed) == fixed) return fixed;
    throw UserError::format(
        "--seq {}: a window of {} is one image of {}; nearest: {} (or leave it out)", *flags.seq,
        model.name, models::image_text(model), fixed);
  }
  if (!flags.seq) return std::min(kDefaultSeq, model.context);
  if (*flags.seq > model.context) {
    throw UserError::format(
        "--seq {}: {} takes sequences of at most {}; nearest: {} (or make the "
        "model longer: --context {})",
        *flags.seq, model.name, model.context, model.context, *flags.seq);
  }
  return *flags.seq;
}

ops::TuneMode tune_mode(const Flags& flags) {
  if (flags.deterministic && flags.autotune == ops::TuneMode::kOn) {
    throw UserError(
        "--autotune on: what is measured may differ between invocations, and so may bits; with "
        "--deterministic take --autotune fixed or off");
  }
  if (flags.device == train::DeviceKind::kCuda && !flags.autotune) return ops::TuneMode::kOff;
  return flags.autotune.value_or(flags.deterministic ? ops::TuneMode::kFixed : ops::TuneMode::kOn);
}

std::string training_data(const Flags& flags, const std::string& executable) {
  if (!flags.data.empty()) return flags.data;
  const std::string corpus = default_corpus(executable);
  if (![&] {
        std::error_code ignored;
        return std::filesystem::exists(corpus, ignored);
      }()) {
    throw UserError::format(
        "the default training text is not at {}: run ./shardbench setup, or "
        "give --data FILE, --data DIR or --data synthetic",
        corpus);
  }
  return corpus;
}

/// Puts hosts around the ranks of every emulated link.
void add_hosts(const Flags& flags, bench::Request& request) {
  if (!flags.link_inter && !flags.ranks_per_host) return;
  if (!flags.link_inter || !flags.ranks_per_host) {
    throw UserError::format("{} is given without {}: the network between hosts takes both",
                            flags.link_inter ? "--link-inter" : "--ranks-per-host",
                            flags.link_inter ? "--ranks-per-host" : "--link-inter");
  }
  if (!request.base.link && request.sweep.links.empty()) {
    throw UserError(
        "--link-inter is given without --link RATE,LATENCY: the ranks of one host need a link too "
        "(a fast one: --link 400Gbit,1us)");
  }
  const auto add = [&](std::optional<comm::LinkModel>& link) {
    if (!link) return;
    link->hosts = comm::HostLink{*flags.link_inter, *flags.ranks_per_host};
    for (const int world_size : request.worlds) comm::validate(*link, world_size);
  };
  add(request.base.link);
  for (std::optional<comm::LinkModel>& link : request.sweep.links) add(link);
}

/// What a run on GPUs cannot do, of the whole request.
void refuse_on_device(const Flags& flags, const train::RunConfig& base) {
  train::validate_device(base);
  if (base.device == train::DeviceKind::kCpu) return;
  const char* what = !flags.sweep.links.empty() ? "--link"
                     : flags.limit              ? "--limit"
                     : !flags.peers.empty()     ? "--peers"
                                                : nullptr;
  if (what != nullptr) {
    throw UserError::format("{} with --device cuda: it is of runs on the CPU; leave it out", what);
  }
}

void require_second_core(const Flags& flags) {
  if (!flags.comm_thread || comm::usable_cores() > 1) return;
  throw UserError(
      "--comm-thread: this process may use one core only, and a thread that carries communication "
      "would take it from the computing one; leave it out");
}

}  // namespace

std::string default_corpus(const std::string& executable) {
  namespace fs = std::filesystem;
  const char* folder = std::getenv("SHARDBENCH_DATA_DIR");
  if (folder != nullptr && *folder != '\0') return (fs::path(folder) / "shakespeare.txt").string();
  const fs::path root = fs::path(executable).parent_path().parent_path();
  return (root / "data" / "shakespeare.txt").string();
}

bench::Request make_request(const Flags& flags, const train::Registry& registry,
                            const std::string& executable) {
  bench::Request request;
  train::RunConfig& base = request.base;
  base.model = make_model(flags);
  base.seq = sequence_length(flags, base.model);
  if (flags.batch && flags.global_batch) {
    throw UserError("--batch and --global-batch are both given: leave one out");
  }
  base.batch = flags.batch.value_or(kDefaultBatch);
  base.warmup = flags.warmup;
  base.steps = flags.steps;
  base.accumulation = flags.accumulation;
  base.max_norm = flags.max_norm;
  base.loss_scale = flags.loss_scale;
  base.optimizer = flags.optimizer;
  base.options = flags.options;
  train::validate_loss_scale(base.options, base.loss_scale);
  base.seed = flags.seed;
  base.deterministic = flags.deterministic;
  base.tuning.mode = tune_mode(flags);
  base.threads = flags.threads;
  base.backend = flags.backend;
  base.device = flags.device;
  base.link = flags.link;
  base.timeout_s = flags.timeout_s;
  base.inject = flags.inject;
  base.rank_logs = flags.rank_logs;
  request.strategies = flags.strategies;
  request.worlds = flags.worlds;
  request.global_batch = flags.global_batch;
  request.repetitions = flags.repetitions;
  request.sweep = flags.sweep;
  request.limit = flags.limit;
  request.peak_tflops = flags.peak_tflops;
  require_second_core(flags);
  base.comm_thread = flags.comm_thread;
  refuse_on_device(flags, base);
  add_hosts(flags, request);

  for (const std::string& strategy : request.strategies) registry.find(strategy);
  request.peers = bench::choose_peers(flags.peers, request.strategies);
  for (const train::RunConfig& job : bench::blocks_of(request)) {
    sharding::plan_units(models::shape_of(base.model), job.options.units);
  }
  base.data = training_data(flags, executable);
  return request;
}

}  // namespace shardbench::cli

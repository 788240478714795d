#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/request.h"
#include "common/core/simd.h"
#include "common/train/registry.h"

namespace shardbench::cli {

/// Values of the flags that subcommands share, with the defaults of `compare`. Flags mean the same
/// everywhere.
struct Flags {
  // Model: a preset or a file, and sizes over it.
  std::string model = "gpt2-nano";
  std::optional<std::int64_t> layers, heads, kv_heads, hidden, feed_forward, vocab, positions,
      split_head;
  bool untied = false;
  std::optional<double> dropout;
  // Work.
  std::vector<std::string> strategies = {"ddp", "zero3", "fsdp"};
  std::vector<int> worlds = {2};
  std::optional<std::int64_t> batch;  ///< sequences per rank; 4 unless --global-batch sets it
  std::optional<std::int64_t> global_batch;
  std::optional<std::int64_t> seq;  ///< 128, or the context of a shorter model
  int accumulation = 1;
  std::string data;  ///< empty: the default corpus
  std::uint64_t seed = 1;
  train::OptimizerConfig optimizer;
  double max_norm = 0;
  std::optional<train::LossScale> loss_scale;
  // How strategies work.
  train::StrategyOptions options;
  std::optional<comm::LinkModel> link;  ///< of ranks; --link-inter comes on top in make_request
  std::optional<comm::LinkSpeed> link_inter;
  std::optional<int> ranks_per_host;
  bool comm_thread = false;
  std::string backend = "auto";
  train::DeviceKind device = train::DeviceKind::kCpu;
  bench::Sweep sweep;  ///< lists of two values or more; their first one stands in its own place
  bool limit = false;
  double peak_tflops = 0;
  std::vector<std::string> peers;  ///< items of --peers
  // Measurement.
  int warmup = 2;
  int steps = 10;
  int repetitions = 1;
  bool deterministic = false;
  std::optional<ops::TuneMode> autotune;  ///< on, or fixed when deterministic
  int threads = 1;
  SimdWidth simd = simd_widths().back();
  double timeout_s = 300;
  std::optional<train::Injection> inject;
  // Output.
  std::string format = "table";
  std::string table = "brief";
  bool explain = false;
  std::string from;  ///< a stored result to show in place of a run
  std::string out;
  std::string rank_logs;
  std::map<std::string, std::string> context;
  bool list = false;
  bool dry_run = false;
  bool quiet = false;
};

/// The flag groups. Each adds its flags to `app`; values land in `flags`, which must outlive it.
void add_model_flags(CLI::App& app, Flags& flags);
void add_work_flags(CLI::App& app, Flags& flags);
void add_precision_flags(CLI::App& app, Flags& flags);      ///< part of the work flags
void add_dtype_flags(CLI::App& app, Flags& flags);          ///< part of those
void add_communication_flags(CLI::App& app, Flags& flags);  ///< by add_strategy_flags
void add_strategy_flags(CLI::App& app, Flags& flags);
void add_measurement_flags(CLI::App& app, Flags& flags);
void add_output_flags(CLI::App& app, Flags& flags,
                      const std::vector<std::string>& formats = {"table", "json"});

/// One flag with a value, parsed by `set`, which throws UserError. `value` is its name in --help.
CLI::Option* add_value(CLI::App& app, const std::string& names, const std::string& value,
                       const std::string& help, std::function<void(const std::string&)> set);
/// A whole number.
CLI::Option* add_count(CLI::App& app, const std::string& names, std::int64_t min, std::int64_t max,
                       const std::string& help, std::function<void(std::int64_t)> set);

/// A flag without a value; one given (`--quiet=3`) is refused.
CLI::Option* add_switch(CLI::App& app, const std::string& name, const std::string& help,
                        bool* target);

/// The model that the flags describe. Throws UserError for an unknown model, a file that describes
/// none, sizes that cannot be built, and flags that have no effect on the model's family.
models::ModelConfig make_model(const Flags& flags);

/// What the flags ask for. Throws UserError for an unknown model or strategy, sizes that cannot be
/// built, sequences longer than the model's context, units that match nothing, a global batch that
/// does not divide, a missing default corpus. `executable` finds the corpus.
bench::Request make_request(const Flags& flags, const train::Registry& registry,
                            const std::string& executable);

/// SHARDBENCH_DATA_DIR/shakespeare.txt, or ../data/shakespeare.txt beside the program's folder.
std::string default_corpus(const std::string& executable);

}  // namespace shardbench::cli

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/commands.h"
#include "bench/cli/flags.h"
#include "bench/cli/parse.h"
#include "bench/cli/run_log.h"
#include "bench/cli/screen.h"
#include "bench/compare/output_file.h"
#include "bench/compare/screens.h"
#include "bench/compare/tuning.h"
#include "common/core/error.h"
#include "common/data/token_source.h"
#include "common/memory/tracker.h"
#include "common/models/config.h"

namespace shardbench::cli {
namespace {

/// Flags that only `run` has.
struct RunFlags {
  Flags common;
  int steps = 200;
  int log_every = 10;
  int eval_every = 0;  ///< 0: at the end only
  int eval_batches = 16;
};

/// The first steps are slower: their times are left out of the result's median, their losses count.
constexpr int kWarmup = 2;

void refuse_lists(const bench::Sweep& sweep) {
  const auto refuse = [](const char* flag, bool is_list) {
    if (!is_list) return;
    throw UserError::format("{}: run trains with one value; compare takes a list", flag);
  };
  refuse("--batch", !sweep.batches.empty());
  refuse("--units", !sweep.units.empty());
  refuse("--prefetch", !sweep.prefetches.empty());
  refuse("--link", !sweep.links.empty());
  refuse("--bucket-cap-mib", !sweep.bucket_caps_mib.empty());
}

bench::Request run_request(const RunFlags& flags, const Program& program) {
  refuse_lists(flags.common.sweep);
  bench::Request request = make_request(flags.common, program.registry, program.executable);
  resolve_backend(request, program);
  request.base.warmup = flags.steps > kWarmup ? kWarmup : 0;
  request.base.steps = flags.steps - request.base.warmup;
  request.base.eval_every = flags.eval_every > 0 ? flags.eval_every : flags.steps;
  request.base.eval_batches = flags.eval_batches;
  return request;
}

/// Prints the log's lines in rank 0 as they come.
train::RankObserver lines_of(TrainingLog& log) {
  const auto print = [](const std::string& line) {
    fmt::print("{}", line);
    std::fflush(stdout);
  };
  return {
      [&log, print](int step, const train::StepRecord& record) {
        print(log.step(step, record, memory::tracker().peak()));
      },
      [&log, print](int step, double loss, bool last) { print(log.evaluation(step, loss, last)); }};
}

int run_command(const RunFlags& flags, const Program& program) {
  if (flags.common.list) {
    print_list(program, flags.common.format);
    return kExitDone;
  }
  use_simd_width(flags.common.simd);
  bench::Request request = run_request(flags, program);
  validate_all(request, program, !flags.common.dry_run);
  train::RunConfig config =
      bench::config_for(request, request.strategies.front(), request.worlds.front());
  bench::Comparison comparison;
  comparison.request = request;
  comparison.model = models::shape_of(config.model);
  const std::string line = bench::context_line(request, comparison.model, request.worlds);
  if (flags.common.dry_run) {
    print_warnings(flags.common, request, program);
    if (flags.common.format == "json") {
      fmt::print("{}", text_of({{"context_line", line},
                                {"strategy", config.strategy},
                                {"world_size", config.world_size},
                                {"steps", flags.steps}}));
    } else {
      fmt::print("{}\n{} steps of {}\n", line, flags.steps, config.strategy);
    }
    return kExitDone;
  }
  std::optional<bench::OutputFile> file;
  if (!flags.common.out.empty() && program.speaks()) file.emplace(flags.common.out);
  print_context(flags.common, request, program);
  print_warnings(flags.common, request, program);
  if (const int signal = bench::tune(request, program.engine); signal != 0) return 128 + signal;
  config.tuning = comparison.request.base.tuning = request.base.tuning;
  print_tuning(flags.common, config.tuning);
  const std::optional<double> bigram =
      data::open_source(config.data, config.seed, config.model.vocab)->bigram_baseline();

  const bool table = flags.common.format == "table";
  if (table) fmt::print("{}, {}\n\n", line, config.strategy);
  TrainingLog log(config, {flags.log_every, bigram});
  if (table) fmt::print("{}", log.header());
  const train::StrategyRun run =
      program.engine.run(config, {}, table ? lines_of(log) : train::RankObserver{});

  const bench::Row row =
      bench::measured_row(run, program.registry.find(config.strategy).formula, comparison.model);
  if (!run.stopped_early.empty()) say(run.stopped_early + "\n");
  comparison.signal = run.signal;
  comparison.blocks.push_back({config.world_size, {row}, 0});
  if (!row.right()) {
    say_failure(program, fmt::format("shardbench: {} W={}: {}\n", config.strategy,
                                     config.world_size, bench::verdict_text(row)));
  } else if (!row.traffic_error.empty()) {
    say(fmt::format("shardbench: {} W={}: {}\n", config.strategy, config.world_size,
                    row.traffic_error));
  }
  nlohmann::ordered_json document =
      bench::document(comparison, document_context(flags.common, program));
  if (bigram && document["results"][0].contains("evaluation")) {
    document["results"][0]["evaluation"]["bigram_baseline"] = *bigram;
  }
  const bool kept = !file || write_results(*file, text_of(document));
  if (!table) {
    fmt::print("{}", text_of(document));
  } else if (row.right() && file) {
    fmt::print("results: {}\n", file->path());
  }
  const int code = bench::exit_code(comparison);
  return kept ? code : std::max<int>(code, kExitWrong);
}

}  // namespace

void add_run(CLI::App& app, const Program& program, Command& chosen) {
  CLI::App* command = app.add_subcommand("run", "train with one strategy");
  const auto flags = std::make_shared<RunFlags>();
  Flags& common = flags->common;
  common.strategies = {"fsdp"};
  common.worlds = {program.default_world_size()};
  add_value(*command, "--strategy", "NAME", "one strategy",
            [flags](const std::string& text) {
              flags->common.strategies = parse_list("--strategy", text);
              if (flags->common.strategies.size() > 1) {
                throw UserError::format("--strategy '{}': run trains one; compare takes several",
                                        text);
              }
            })
      ->default_str("fsdp")
      ->group("Work");
  add_count(*command, "--world,--nproc", 1, 64, "ranks",
            [flags](std::int64_t n) { flags->common.worlds = {static_cast<int>(n)}; })
      ->default_str(fmt::format("{}", common.worlds.front()))
      ->group("Work");
  add_model_flags(*command, common);
  add_work_flags(*command, common);
  add_strategy_flags(*command, common);
  const auto count = [&](const std::string& name, std::int64_t min, int RunFlags::*target,
                         const std::string& help, const std::string& standard) {
    add_count(*command, name, min, 10'000'000, help,
              [flags, target](std::int64_t n) { (*flags).*target = static_cast<int>(n); })
        ->default_str(standard)
        ->group("Running");
  };
  count("--steps", 1, &RunFlags::steps, "optimizer steps", "200");
  count("--log-every", 1, &RunFlags::log_every, "steps between lines", "10");
  count("--eval-every", 0, &RunFlags::eval_every,
        "steps between evaluations on the held-out tenth; 0: at the end only", "0");
  count("--eval-batches", 0, &RunFlags::eval_batches,
        "batches of evaluations on the way; 0: all (the last always takes all)", "16");
  add_measurement_flags(*command, common);
  add_output_flags(*command, common);
  command->callback([&chosen, &program, flags] {
    chosen = [&program, flags] { return run_command(*flags, program); };
  });
}

}  // namespace shardbench::cli

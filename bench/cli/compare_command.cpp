#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/commands.h"
#include "bench/cli/flags.h"
#include "bench/cli/parse.h"
#include "bench/cli/screen.h"
#include "bench/compare/format.h"
#include "bench/compare/output_file.h"
#include "bench/compare/plain_words.h"
#include "bench/compare/screens.h"
#include "common/core/error.h"
#include "common/models/config.h"

namespace shardbench::cli {
namespace {

/// The --out file, or the usual place; nothing when that place cannot be written, or when the
/// document goes to stdout anyway.
std::optional<bench::OutputFile> output_file(const Flags& flags) {
  if (!flags.out.empty()) return bench::OutputFile(flags.out);
  if (flags.format == "json") return std::nullopt;
  try {
    const std::string path = bench::default_output_path();
    if (path.empty()) return std::nullopt;
    return bench::OutputFile(path);
  } catch (const UserError&) {
    return std::nullopt;  // nobody asked for this file
  }
}

bench::Invocation invocation_of(const Flags& flags, const Program& program) {
  bench::Invocation invocation;
  invocation.command = command_without(
      program, {"--world", "--nproc", "--link", "--table", "--out", "--format", "--repetitions"});
  if (flags.worlds != std::vector<int>{2}) {
    invocation.world = fmt::format(" --world {}", fmt::join(flags.worlds, ","));
  }
  return invocation;
}

void print_failures(const bench::Comparison& comparison) {
  for (const bench::Block& block : comparison.blocks) {
    for (const bench::Row& row : block.rows) {
      if (!row.right()) {
        say(fmt::format("shardbench: {} W={}: {}\n", row.strategy(), block.world_size,
                        bench::verdict_text(row)));
      } else if (!row.traffic_error.empty()) {
        say(fmt::format("shardbench: {} W={}: {}\n", row.strategy(), block.world_size,
                        row.traffic_error));
      }
    }
  }
  if (comparison.signal != 0) {
    say(fmt::format("shardbench: stopped by signal {}\n", comparison.signal));
  }
}

void print_screen(const Flags& flags, const bench::Comparison& comparison, const Program& program,
                  const std::optional<bench::OutputFile>& file) {
  const bench::TableKind kind = *bench::table_kind(flags.table);
  fmt::print("{}", bench::render_table(kind, comparison));
  if (kind != bench::TableKind::kBrief) return;
  const bench::Invocation invocation = invocation_of(flags, program);
  fmt::print("\n{}", bench::plain_words(comparison, invocation));
  if (file) {
    const std::string keep = flags.out.empty() ? "; keep them with --out FILE" : "";
    fmt::print("\n{}", bench::wrapped("Results  ", file->path() + " (JSON)" + keep));
  }
  fmt::print("{}", bench::wrapped("Next     ",
                                  fmt::format("{}{} --table full (or memory, traffic, time); "
                                              "--world 1,2,4; --units tensor; ./shardbench run",
                                              invocation.command, invocation.world)));
}

void print_plan(const bench::Request& request, const Program& program) {
  const sharding::ModelShape model = models::shape_of(request.base.model);
  fmt::print("{}\n", bench::context_line(request, model, request.worlds));
  fmt::print("{} training runs of {} + {} steps, references included:\n",
             bench::runs_of(request, program.registry), request.base.warmup, request.base.steps);
  for (int world_size : request.worlds) {
    for (const std::string& name : bench::row_order(request.strategies)) {
      const train::RunConfig config = bench::config_for(request, name, world_size);
      const sharding::FormulaInput input = bench::formula_input(config, model);
      const sharding::FormulaKind kind = program.registry.find(name).formula;
      std::vector<double> states;
      std::vector<double> sent;
      for (int rank = 0; rank < world_size; ++rank) {
        states.push_back(
            static_cast<double>(sharding::formula_memory(kind, input, rank).persistent()));
        sent.push_back(0);
        for (const auto& entry : sharding::formula_traffic(kind, input, rank)) {
          sent.back() += static_cast<double>(entry.algo_bytes);
        }
      }
      fmt::print(
          "  {:<8} W={:<2} batch {} per rank; by formula: states {} MiB on the fullest rank, "
          "sent {} MiB per rank and step\n",
          name, world_size, config.batch, bench::mib(bench::spread_of(states).max),
          bench::mib(bench::spread_of(sent).mean));
    }
  }
}

int compare_command(const Flags& flags, const Program& program) {
  if (flags.list) {
    print_list(program);
    return kExitDone;
  }
  const bench::Request request = make_request(flags, program.registry, program.executable);
  validate_all(request, program, !flags.dry_run);
  if (flags.dry_run) {
    print_warnings(flags, request, program);
    print_plan(request, program);
    return kExitDone;
  }
  const std::optional<bench::OutputFile> file = output_file(flags);
  print_context(flags, request, program);
  print_warnings(flags, request, program);

  ProgressLine progress(!flags.quiet);
  bench::Observer observer;
  observer.begin = [&](const std::string& name, int index, int all) {
    progress.begin(name, index, all);
  };
  observer.progress = [&](int done, int all) { progress.step(done, all); };
  const bench::Comparison comparison =
      bench::compare(request, program.registry, program.engine, observer);
  progress.clear();

  print_failures(comparison);
  const nlohmann::ordered_json document =
      bench::document(comparison, document_context(flags, program));
  const bool kept = !file || write_results(*file, text_of(document));
  if (flags.format == "json") {
    fmt::print("{}", text_of(document));
  } else {
    print_screen(flags, comparison, program, file);
  }
  return kept ? bench::exit_code(comparison) : kExitWrong;
}

}  // namespace

void add_compare(CLI::App& app, const Program& program, Command& chosen) {
  CLI::App* command = app.add_subcommand("compare", "strategies side by side on the same work");
  const auto flags = std::make_shared<Flags>();
  std::vector<std::string> known;
  for (const train::StrategyEntry& entry : program.registry.entries()) known.push_back(entry.name);
  add_value(
      *command, "--strategy", "A,B,..", fmt::format("from {}", fmt::join(known, ", ")),
      [flags](const std::string& text) { flags->strategies = parse_list("--strategy", text); })
      ->default_str("ddp,zero3,fsdp")
      ->group("Work");
  add_value(*command, "--world,--nproc", "N[,N..]", "ranks",
            [flags](const std::string& text) {
              flags->worlds.clear();
              for (const std::string& item : parse_list("--world", text)) {
                flags->worlds.push_back(static_cast<int>(parse_count("--world", item, 1, 64)));
              }
            })
      ->default_str("2")
      ->group("Work");
  add_model_flags(*command, *flags);
  add_work_flags(*command, *flags);
  add_strategy_flags(*command, *flags);
  const auto count = [&](const std::string& name, std::int64_t min, int Flags::*target,
                         const std::string& help, const std::string& standard) {
    add_count(*command, name, min, 1'000'000, help,
              [flags, target](std::int64_t n) { (*flags).*target = static_cast<int>(n); })
        ->default_str(standard)
        ->group("Running");
  };
  count("--steps", 1, &Flags::steps, "measured steps", "10");
  count("--warmup", 0, &Flags::warmup, "steps before them", "2");
  count("--repetitions", 1, &Flags::repetitions, "rounds over the strategies, fresh ranks each",
        "1");
  add_measurement_flags(*command, *flags);
  add_value(*command, "--table", "KIND", "brief, full, memory, traffic or time",
            [flags](const std::string& text) {
              flags->table =
                  parse_choice("--table", text, {"brief", "full", "memory", "traffic", "time"});
            })
      ->default_str("brief")
      ->group("Output");
  add_output_flags(*command, *flags);
  command->callback([&chosen, &program, flags] {
    chosen = [&program, flags] { return compare_command(*flags, program); };
  });
}

}  // namespace shardbench::cli

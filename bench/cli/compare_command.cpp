#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/commands.h"
#include "bench/cli/compare_plan.h"
#include "bench/cli/compare_screen.h"
#include "bench/cli/flags.h"
#include "bench/cli/parse.h"
#include "bench/cli/screen.h"
#include "bench/compare/output_file.h"
#include "bench/compare/read_document.h"
#include "bench/compare/screens.h"
#include "bench/peers/training.h"
#include "common/core/error.h"
#include "common/core/format.h"
#include "common/core/machine_info.h"

namespace shardbench::cli {
namespace {

/// The --out file, or the usual place; nothing when that place cannot be written, or when the
/// document goes to stdout anyway.
std::optional<bench::OutputFile> output_file(const Flags& flags, const Program& program) {
  if (!program.speaks()) return std::nullopt;
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

void print_failures(const bench::Comparison& comparison, const Program& program) {
  for (const bench::Row* row : bench::rows_of(comparison)) {
    const std::string title =
        fmt::format("{} {}", row->strategy(), bench::block_title(comparison.request, row->config));
    if (!row->stopped_early.empty()) say(fmt::format("{}: {}\n", title, row->stopped_early));
    const std::string what = row->right() ? row->traffic_error : bench::verdict_text(*row);
    if (what.empty()) continue;
    say_failure(program, fmt::format("shardbench: {}: {}\n", title, what));
  }
  for (const bench::Block& block : comparison.blocks) {
    for (const bench::PeerRow& peer : block.peers) {
      if (peer.right()) continue;
      say(fmt::format("shardbench: {} {}: {}\n", peer.kind().title,
                      bench::block_title(comparison.request, block.rows.front().config),
                      bench::verdict_text(peer)));
    }
  }
  if (comparison.signal != 0) {
    say(fmt::format("shardbench: stopped by signal {}\n", comparison.signal));
  }
}

/// Where the results lie and what to try next, under the words of the default screen.
std::vector<bench::Paragraph> closing_words(const Flags& flags, const bench::Request& request,
                                            const Program& program,
                                            const std::optional<bench::OutputFile>& file) {
  std::vector<bench::Paragraph> words;
  if (file) {
    const std::string keep = flags.out.empty() ? "; keep them with --out FILE" : "";
    words.push_back({"Results", file->path() + " (JSON)" + keep});
  }
  const bench::Invocation invocation = invocation_of(request, program.args);
  words.push_back({"Next", fmt::format("{}{} --table full (or memory, traffic, time, units); "
                                       "--explain; --world 1,2,4 --table scaling; --units "
                                       "block,tensor; ./shardbench run",
                                       invocation.command, invocation.world)});
  return words;
}

/// Flags that say how stored results are shown; all others belong to a run.
void refuse_flags_of_a_run(const CLI::App& command) {
  const std::vector<std::string> shown = {"--from",  "--table",   "--format",
                                          "--quiet", "--explain", "--help"};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name(/*positional=*/false, /*all_options=*/false);
    if (option->count() == 0 || std::find(shown.begin(), shown.end(), name) != shown.end()) {
      continue;
    }
    throw UserError::format("--from shows results that are there already: leave {} out", name);
  }
}

int show_stored(const Flags& flags, const Program& program) {
  if (flags.format == "json") {
    throw UserError("--from: the file is JSON already; take --format table, csv or md");
  }
  const bench::StoredResults stored = [&] {
    try {
      return bench::read_document_file(flags.from, program.registry);
    } catch (const UserError& error) {
      throw UserError::format("--from {}", error.what());
    }
  }();
  if (flags.table == "peers" && stored.comparison.request.peers.empty()) {
    throw UserError::format("--table peers: {} has no peers", flags.from);
  }
  fmt::print("{}", comparison_text(flags, stored.comparison, {stored.context, stored.config}, {}));
  return stored.okay ? kExitDone : kExitWrong;
}

/// Whether the peers that were asked for can do the job, and the table of peers has any.
void check_peers(const Flags& flags, const bench::Request& request, const Program& program) {
  if (!request.peers.empty()) {
    bench::refuse_unknown_to_peers(request);
    if (program.ranks != nullptr && program.ranks->launched_world_size() > 0) {
      throw UserError("--peers: peers start their own ranks; run it without mpirun or torchrun");
    }
  } else if (flags.table == "peers") {
    throw UserError("--table peers: nobody to show; give --peers torch, deepspeed or single rows");
  }
}

bench::Comparison run_all(const Flags& flags, const bench::Request& request,
                          const Program& program) {
  ProgressLine progress(!flags.quiet);
  bench::Observer observer;
  observer.begin = [&](const std::string& name, int index, int all) {
    progress.begin(name, index, all);
  };
  observer.progress = [&](int done, int all) { progress.step(done, all); };
  observer.tuning = [&] {
    progress.begin("measuring operations", 0, bench::runs_of(request, program.registry));
  };
  observer.tuned = [&](const ops::TuningTable& table) {
    progress.clear();
    print_tuning(flags, table);
  };
  bench::Comparison comparison =
      bench::compare(request, program.registry, program.engine, observer);
  comparison.cores = machine_info().num_cpus;
  progress.clear();
  return comparison;
}

int compare_command(const Flags& flags, const CLI::App& command, const Program& program) {
  if (flags.explain && flags.format != "table" && flags.format != "md") {
    throw UserError::format("--explain: its words do not fit into {}; take --format table or md",
                            flags.format);
  }
  if (!flags.from.empty()) {
    refuse_flags_of_a_run(command);
    return show_stored(flags, program);
  }
  if (flags.list) {
    print_list(program, flags.format);
    return kExitDone;
  }
  use_simd_width(flags.simd);
  bench::Request request = make_request(flags, program.registry, program.executable);
  resolve_backend(request, program);
  validate_all(request, program, !flags.dry_run);
  check_peers(flags, request, program);
  if (flags.dry_run) {
    print_warnings(flags, request, program);
    print_plan(request, program, flags.format);
    return kExitDone;
  }
  const std::optional<bench::OutputFile> file = output_file(flags, program);
  print_context(flags, request, program);
  print_warnings(flags, request, program);
  if (!flags.quiet && bench::blocks_of(request).size() > 1) {
    say(fmt::format("sweep: {}\n", count_of_runs(request, program)));
  }
  const bench::Comparison comparison = run_all(flags, request, program);

  print_failures(comparison, program);
  const nlohmann::ordered_json document =
      bench::document(comparison, document_context(flags, program));
  // A file that nobody asked for may fail: nothing that was asked for is lost.
  const bool written = !file || write_results(*file, text_of(document));
  const bool kept = written || flags.out.empty();
  if (flags.format == "json") {
    fmt::print("{}", text_of(document));
  } else {
    fmt::print("{}",
               comparison_text(flags, comparison, {document.at("context"), document.at("config")},
                               closing_words(flags, request, program,
                                             written ? file : std::optional<bench::OutputFile>())));
  }
  const int code = bench::exit_code(comparison);
  return kept ? code : std::max<int>(code, kExitWrong);
}

/// What is shown and how; only `compare` has these.
void add_table_flags(CLI::App& command, Flags& flags) {
  const std::string group = "Output";
  add_value(command, "--table", "KIND", "what is shown: " + join(bench::table_names()),
            [&flags](const std::string& text) {
              flags.table = parse_choice("--table", text, bench::table_names());
            })
      ->default_str("brief")
      ->group(group);
  add_switch(command, "--explain", "say of every column what it is, with the run's own numbers",
             &flags.explain)
      ->group(group);
  add_value(command, "--from", "FILE", "show the results of a file in place of a run",
            [&flags](const std::string& text) {
              if (text.empty()) throw UserError("--from: give the name of a result file");
              flags.from = text;
            })
      ->group(group);
  add_switch(command, "--limit",
             "measure every operation, the optimizer and a copy by themselves, and show step times "
             "beside their sum (--table time)",
             &flags.limit)
      ->group(group);
  add_value(command, "--peak-tflops", "X",
            "10^12 operations per second that one rank can do: adds the utilisation (mfu)",
            [&flags](const std::string& text) {
              flags.peak_tflops = parse_real("--peak-tflops", text, 0, 1e9, /*above=*/true);
            })
      ->group(group);
}

}  // namespace

void add_compare(CLI::App& app, const Program& program, Command& chosen) {
  CLI::App* command = app.add_subcommand("compare", "strategies side by side on the same work");
  const auto flags = std::make_shared<Flags>();
  flags->worlds = {program.default_world_size()};
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
              std::vector<std::string> numbers;
              for (int w : flags->worlds) numbers.push_back(fmt::format("{}", w));
              require_distinct("--world", text, numbers);
            })
      ->default_str(fmt::format("{}", flags->worlds.front()))
      ->group("Work");
  add_value(*command, "--peers", "A,B,..",
            "the same work in other frameworks, under the strategies: torch, deepspeed, or single "
            "rows of theirs (see --list)",
            [flags](const std::string& text) { flags->peers = parse_list("--peers", text); })
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
  add_table_flags(*command, *flags);
  add_output_flags(*command, *flags, {"table", "json", "csv", "md"});
  command->callback([&chosen, &program, flags, command] {
    chosen = [&program, flags, command] { return compare_command(*flags, *command, program); };
  });
}

}  // namespace shardbench::cli

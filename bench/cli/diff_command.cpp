#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/commands.h"
#include "bench/cli/flags.h"
#include "bench/cli/parse.h"
#include "bench/cli/screen.h"
#include "bench/compare/output_file.h"
#include "bench/diff/diff.h"
#include "bench/diff/report.h"
#include "common/core/error.h"

namespace shardbench::cli {
namespace {

struct DiffFlags {
  std::vector<std::string> files;
  std::vector<std::string> strategies, metrics;
  std::optional<std::pair<std::string, std::string>> rows;
  double min_change_percent = 2;
  std::optional<double> fail_on_worse_percent;
  std::string table = "brief";
  std::string format = "table";
  std::string out;
  bool quiet = false;
};

bench::ResultFile read_side(const std::string& list) {
  std::vector<bench::ResultFile> files;
  for (const std::string& path : parse_list("diff", list)) {
    files.push_back(bench::read_results(path));
  }
  return bench::pooled(std::move(files));
}

bench::DiffOptions options_of(const DiffFlags& flags) {
  bench::DiffOptions options;
  options.metrics = bench::choose_metrics(flags.metrics, flags.table == "full");
  options.strategies = flags.strategies;
  options.rows = flags.rows;
  options.min_change = flags.min_change_percent / 100;
  return options;
}

std::string rendered(const DiffFlags& flags, const bench::Diff& diff,
                     const bench::ResultFile& old_file, const bench::ResultFile& new_file) {
  if (flags.format == "json") return text_of(bench::diff_json(diff, old_file, new_file));
  const bench::Table table = bench::diff_table(diff);
  if (flags.format == "csv") return bench::to_csv({&table});
  if (flags.format == "md") return bench::to_markdown(table);
  return table.render() + "\n" + bench::diff_footer(diff);
}

int diff_command(const DiffFlags& flags) {
  const bench::DiffOptions options = options_of(flags);
  if (flags.files.size() == 1 && !flags.rows) {
    throw UserError(
        "diff needs two result files, or one and --rows OLD,NEW, which names two of its rows");
  }
  const bench::ResultFile old_file = read_side(flags.files.front());
  const bench::ResultFile new_file =
      flags.files.size() == 1 ? old_file : read_side(flags.files.back());
  std::optional<bench::OutputFile> file;
  if (!flags.out.empty()) file.emplace(flags.out);
  const bench::Diff diff = bench::diff(old_file, new_file, options);
  const std::string warning = bench::diff_warning(diff);
  if (!flags.quiet && !warning.empty()) say(fmt::format("warning: {}\n", warning));
  if (diff.lines.empty()) {
    throw UserError::format("--metric: {} has none of these figures", new_file.path);
  }
  const bool kept =
      !file || write_results(*file, text_of(bench::diff_json(diff, old_file, new_file)));
  fmt::print("{}", rendered(flags, diff, old_file, new_file));
  if (!kept) return kExitWrong;
  const bool failed =
      flags.fail_on_worse_percent && bench::any_worse(diff, *flags.fail_on_worse_percent / 100);
  return failed ? kExitWrong : kExitDone;
}

void add_choice_flags(CLI::App& app, DiffFlags& flags) {
  const std::string group = "What is compared";
  add_value(app, "--rows", "OLD,NEW",
            "these two rows (or strategies, where that names one row), such as ddp,fsdp; with one "
            "file, two rows of it",
            [&](const std::string& text) {
              const std::size_t comma = text.find(',');
              if (comma == 0 || comma == std::string::npos || comma + 1 == text.size() ||
                  text.find(',', comma + 1) != std::string::npos) {
                throw UserError::format("--rows '{}': give two names, OLD,NEW", text);
              }
              flags.rows = {text.substr(0, comma), text.substr(comma + 1)};
            })
      ->group(group);
  add_value(app, "--strategy", "A,B,..", "only rows of these strategies",
            [&](const std::string& text) { flags.strategies = parse_list("--strategy", text); })
      ->group(group);
  add_value(app, "--metric", "A,B,..",
            fmt::format("from {}", fmt::join(bench::metric_names(), ", ")),
            [&](const std::string& text) { flags.metrics = parse_list("--metric", text); })
      ->group(group);
  add_value(app, "--min-change", "PERCENT",
            "times that changed by less, in per cent of the step, are no difference",
            [&](const std::string& text) {
              flags.min_change_percent = parse_real("--min-change", text, 0, 1000);
            })
      ->default_str("2")
      ->group(group);
}

void add_report_flags(CLI::App& app, DiffFlags& flags) {
  const std::string group = "Output";
  app.add_option_function<std::string>(
         "--fail-on-worse",
         [&](const std::string& text) {
           // Without "=", what follows it is read as its value, a file's name as well.
           if (!text.empty() && text.find_first_of("0123456789+-.") != 0) {
             throw UserError::format(
                 "--fail-on-worse '{}': not a number; write --fail-on-worse=PERCENT, or the flag "
                 "alone after the files",
                 text);
           }
           flags.fail_on_worse_percent =
               text.empty() ? 0 : parse_real("--fail-on-worse", text, 0, 1e6);
         },
         "exit code 1 when anything got worse (by at least PERCENT: --fail-on-worse=5)")
      ->type_name("[PERCENT]")
      ->expected(0, 1)
      ->group(group);
  add_value(app, "--table", "KIND", "brief, or full (also forward, backward and optimizer)",
            [&](const std::string& text) {
              flags.table = parse_choice("--table", text, {"brief", "full"});
            })
      ->default_str("brief")
      ->group(group);
  add_value(app, "--format", "table|json|csv|md", "what goes to stdout",
            [&](const std::string& text) {
              flags.format = parse_choice("--format", text, {"table", "json", "csv", "md"});
            })
      ->default_str("table")
      ->group(group);
  add_value(app, "--out", "FILE", "write the comparison there, as JSON",
            [&](const std::string& text) {
              if (text.empty()) throw UserError("--out: give the name of a file");
              flags.out = text;
            })
      ->group(group);
  add_switch(app, "--quiet", "no warnings on stderr", &flags.quiet)->group(group);
}

}  // namespace

void add_diff(CLI::App& app, const Program&, Command& chosen) {
  CLI::App* command =
      app.add_subcommand("diff", "two result files: what got better, worse or shows no difference");
  const auto flags = std::make_shared<DiffFlags>();
  command
      ->add_option("files", flags->files,
                   "OLD NEW: files of compare --out or run --out. Each may be a list A1,A2,.. of "
                   "files measured in turns with those of the other side (A1 B1 A2 B2 ..), which "
                   "takes out what slows the machine for a while. One file with --rows")
      ->type_name("FILE")
      ->required()
      ->expected(1, 2);
  add_choice_flags(*command, *flags);
  add_report_flags(*command, *flags);
  command->callback([&chosen, flags] { chosen = [flags] { return diff_command(*flags); }; });
}

}  // namespace shardbench::cli

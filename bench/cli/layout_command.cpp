#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli/commands.h"
#include "bench/cli/flags.h"
#include "bench/cli/parse.h"
#include "bench/cli/screen.h"
#include "bench/compare/document.h"
#include "bench/compare/output_file.h"
#include "bench/layout/report.h"
#include "common/core/error.h"
#include "common/core/format.h"
#include "common/models/config.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::cli {
namespace {

nlohmann::ordered_json document_of(const bench::LayoutReport& report, const Flags& flags,
                                   const Program& program) {
  bench::Request request;  // what the context says of machine and program
  request.worlds = flags.worlds;
  nlohmann::ordered_json context = bench::context_json(request, document_context(flags, program));
  for (const char* key : {"backend", "threads_per_rank", "simd", "seed", "deterministic"}) {
    context.erase(key);  // nothing is run
  }
  return {
      {"schema_version", 1},
      {"context", std::move(context)},
      {"config", bench::layout_config_json(report)},
      {"layouts", bench::layouts_json(report, bench::layout_details(
                                                  report, bench::layout_table_kind(flags.table)))},
      {"okay", true}};
}

int layout_command(const Flags& flags, const Program& program) {
  const bench::LayoutReport report = bench::make_layout_report(
      models::shape_of(make_model(flags)),
      {flags.options.units, flags.options.compute_dtype, flags.options.reduce_dtype},
      flags.strategies, flags.worlds);
  std::optional<bench::OutputFile> file;
  if (!flags.out.empty()) file.emplace(flags.out);
  const bench::LayoutTable kind = bench::layout_table_kind(flags.table);
  std::string json;
  if (file || flags.format == "json") json = text_of(document_of(report, flags, program));
  const bool kept = !file || write_results(*file, json);
  if (flags.format == "json") {
    fmt::print("{}", json);
  } else if (flags.format == "csv") {
    fmt::print("{}", bench::layout_csv(report, kind));
  } else if (flags.format == "md") {
    fmt::print("{}", bench::layout_markdown(report, kind));
  } else {
    fmt::print("{}", bench::layout_text(report, kind));
  }
  return kept ? kExitDone : kExitWrong;
}

void add_layout_output(CLI::App& app, Flags& flags) {
  const std::string group = "Output";
  add_value(app, "--table", "KIND", "what is shown: " + join(bench::layout_table_names()),
            [&](const std::string& text) {
              flags.table = parse_choice("--table", text, bench::layout_table_names());
            })
      ->default_str("brief")
      ->group(group);
  add_value(app, "--format", "table|json|csv|md", "what goes to stdout",
            [&](const std::string& text) {
              flags.format = parse_choice("--format", text, {"table", "json", "csv", "md"});
            })
      ->default_str("table")
      ->group(group);
  add_value(app, "--out", "FILE", "write the layouts there, as JSON", [&](const std::string& text) {
    if (text.empty()) throw UserError("--out: give the name of a file");
    flags.out = text;
  })->group(group);
}

}  // namespace

void add_layout(CLI::App& app, const Program& program, Command& chosen) {
  CLI::App* command = app.add_subcommand(
      "layout", "which rank keeps what: rows, owners, balance, padding; nothing is run");
  const auto flags = std::make_shared<Flags>();
  flags->strategies = {"zero3", "fsdp"};
  add_value(
      *command, "--strategy", "A,B,..", "from ddp, zero1, zero2, zero3, fsdp",
      [flags](const std::string& text) { flags->strategies = parse_list("--strategy", text); })
      ->default_str("zero3,fsdp")
      ->group("Work");
  add_value(*command, "--world,--nproc", "N[,N-M..]",
            fmt::format("ranks, up to {}; ranges such as 1-1024", bench::kMostLayoutRanks),
            [flags](const std::string& text) {
              flags->worlds = bench::parse_layout_worlds("--world", text);
            })
      ->default_str("2")
      ->group("Work");
  add_value(*command, "--units,--wrap", "POLICY",
            "what is unsharded together: block, tensor, whole, size:N or class:NAME",
            [flags](const std::string& text) {
              flags->options.units = sharding::UnitPolicy::parse(text);
            })
      ->default_str("block")
      ->group("Work");
  add_dtype_flags(*command, *flags);
  add_model_flags(*command, *flags);
  add_layout_output(*command, *flags);
  command->callback([&chosen, &program, flags] {
    chosen = [&program, flags] { return layout_command(*flags, program); };
  });
}

}  // namespace shardbench::cli

#include "bench/cli/compare_screen.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/compare/explain.h"

namespace shardbench::cli {

std::string comparison_text(const Flags& flags, const bench::Comparison& comparison,
                            const DocumentParts& document,
                            const std::vector<bench::Paragraph>& closing) {
  const bench::TableKind kind = *bench::table_kind(flags.table);
  bench::Report report;
  report.screen = bench::make_screen(kind, comparison);
  if (kind == bench::TableKind::kBrief) {
    std::vector<std::string> args;
    if (document.context.contains("args")) document.context.at("args").get_to(args);
    report.words = bench::paragraphs(comparison, invocation_of(comparison.request, args));
  }
  if (flags.explain) report.explained = bench::explain(comparison, report.screen);
  if (flags.format == "csv") return bench::to_csv(report);
  if (flags.format == "md") return bench::to_markdown(report, document.context, document.config);
  std::string text = bench::to_text(report);
  if (kind == bench::TableKind::kBrief && !closing.empty()) {
    text += "\n" + bench::to_text(closing, 9);
  }
  return text;
}

bench::Invocation invocation_of(const bench::Request& request,
                                const std::vector<std::string>& args) {
  bench::Invocation invocation;
  invocation.command = bench::command_of(
      args, {"--world", "--nproc", "--link", "--link-inter", "--ranks-per-host", "--table", "--out",
             "--format", "--repetitions", "--quiet", "--explain"});
  if (request.worlds != std::vector<int>{2}) {
    invocation.world = fmt::format(" --world {}", fmt::join(request.worlds, ","));
  }
  return invocation;
}

}  // namespace shardbench::cli

#include "bench/cli/compare_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/cli/screen.h"
#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "common/core/format.h"
#include "common/models/config.h"

namespace shardbench::cli {
namespace {

using bench::Cell;

/// Bytes by formula of one row.
struct Planned {
  double states = 0;  ///< of the fullest rank
  double sent = 0;    ///< in one step, mean over ranks
};

Planned planned(const train::RunConfig& config, sharding::FormulaKind kind,
                const sharding::ModelShape& model) {
  const sharding::FormulaInput input = bench::formula_input(config, model);
  std::vector<double> states;
  std::vector<double> sent;
  for (int rank = 0; rank < config.world_size; ++rank) {
    states.push_back(static_cast<double>(sharding::formula_memory(kind, input, rank).persistent()));
    sent.push_back(0);
    for (const auto& entry : sharding::formula_traffic(kind, input, rank)) {
      sent.back() += static_cast<double>(entry.algo_bytes);
    }
  }
  return {bench::spread_of(states).max, bench::spread_of(sent).mean};
}

bench::Table plan_table(const bench::Request& request, const Program& program,
                        const sharding::ModelShape& model) {
  const std::string formula = "by formula, MiB";
  std::vector<bench::Column> columns = {{"", "strategy", true, "strategy"},
                                        {"", "W", false, "world_size"},
                                        {"", "batch/rank", false, "batch"}};
  for (bench::Axis axis : bench::kAxes) {
    if (axis == bench::Axis::kBatch) continue;
    columns.push_back(
        {"", bench::axis_name(axis), true, bench::axis_name(axis), !varies(request, axis)});
  }
  columns.push_back({formula, "states, fullest rank", false, "states_mib"});
  columns.push_back({formula, "sent per rank and step", false, "sent_mib"});
  bench::Table table(std::move(columns));
  for (train::RunConfig config : bench::blocks_of(request)) {
    for (const std::string& name : bench::row_order(request.strategies)) {
      config.strategy = name;
      const Planned bytes = planned(config, program.registry.find(name).formula, model);
      std::vector<Cell> cells = {name, Cell::of(static_cast<std::int64_t>(config.world_size)),
                                 Cell::of(config.batch)};
      for (bench::Axis axis : bench::kAxes) {
        if (axis != bench::Axis::kBatch) cells.emplace_back(bench::axis_value(axis, config));
      }
      cells.push_back(bench::mib_cell(bytes.states));
      cells.push_back(bench::mib_cell(bytes.sent));
      table.add_row(std::move(cells));
    }
  }
  return table;
}

}  // namespace

std::string count_of_runs(const bench::Request& request, const Program& program) {
  const std::size_t blocks = bench::blocks_of(request).size();
  const int references = bench::references_of(request, program.registry);
  const std::string combinations =
      blocks > 1 ? fmt::format(" x {} combinations", blocks) : std::string();
  const std::string repetitions = request.repetitions > 1
                                      ? fmt::format(" x {} repetitions", request.repetitions)
                                      : std::string();
  const std::string peers =
      request.peers.empty()
          ? std::string()
          : fmt::format(" and {} peers ({})", request.peers.size(), join(request.peers));
  return fmt::format("{} training runs of {} + {} steps: {} reference{}, {} strategies{}{}{}",
                     bench::runs_of(request, program.registry), request.base.warmup,
                     request.base.steps, references, references == 1 ? "" : "s",
                     request.strategies.size(), peers, combinations, repetitions);
}

void print_plan(const bench::Request& request, const Program& program, const std::string& format) {
  const sharding::ModelShape model = models::shape_of(request.base.model);
  const std::string line = bench::context_line(request, model, request.worlds);
  const std::string runs = count_of_runs(request, program);
  const bench::Table table = plan_table(request, program, model);
  if (format == "json") {
    fmt::print("{}", text_of({{"context_line", line},
                              {"config", bench::config_json(request, model)},
                              {"runs", bench::runs_of(request, program.registry)},
                              {"references", bench::references_of(request, program.registry)},
                              {"jobs", bench::to_json(table)}}));
  } else if (format == "csv") {
    fmt::print("{}", bench::to_csv({&table}));
  } else if (format == "md") {
    fmt::print("{}\n\n{}\n\n{}", line, runs, bench::to_markdown(table));
  } else {
    fmt::print("{}\n{}\n\n{}", line, runs, table.render());
  }
}

}  // namespace shardbench::cli

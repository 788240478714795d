#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "bench/compare/table.h"
#include "bench/layout/layout.h"

namespace shardbench::bench {

/// Layouts of one model: strategies x world sizes.
struct LayoutReport {
  sharding::ModelShape model;
  LayoutOptions options;
  std::vector<sharding::UnitShape> units;
  std::vector<Layout> layouts;  ///< world sizes in the order given, strategies within each
};

/// Throws UserError for unknown strategies and for units that match nothing.
LayoutReport make_layout_report(sharding::ModelShape model, const LayoutOptions& options,
                                const std::vector<std::string>& strategies,
                                const std::vector<int>& worlds);

/// "1,4,16-64": world sizes up to kMostLayoutRanks, ranges included, none twice. Throws UserError.
std::vector<int> parse_layout_worlds(const std::string& flag, const std::string& text);

/// The line above every table: model, parameters, dtypes, what a parameter costs, units.
std::string layout_line(const LayoutReport& report);

/// One row per layout: bytes per rank, balance, padding, ranks that keep nothing, bytes sent.
Table layout_summary_table(const std::vector<const Layout*>& layouts);
/// One row per unit of one layout. With `fold`, neighbours alike but for the name share a row.
Table layout_units_table(const LayoutReport& report, const Layout& layout, bool fold);
/// One row per tensor and run of ranks that keep equally much of it.
Table layout_tensors_table(const LayoutReport& report, const Layout& layout);
/// One row per run of neighbouring ranks that keep equally much.
Table layout_ranks_table(const LayoutReport& report, const Layout& layout);
/// For people: tensors of equal shape in blocks alike share a row; the first ranks' rows, or the
/// owners, as far as they fit kScreenWidth.
Table layout_brief_tensors_table(const LayoutReport& report, const Layout& layout);

/// Rows as their numbers: "0-63", "4" for one, a dash for none.
std::string row_range_text(const sharding::Range& rows);

enum class LayoutTable { kBrief, kFull, kSummary, kUnits, kTensors, kRanks };
/// brief full summary units tensors ranks
const std::vector<std::string>& layout_table_names();
LayoutTable layout_table_kind(const std::string& name);

/// What goes to stdout. Brief shows units and tensors only where there is one world size, and a
/// choice of world sizes where there are many.
std::string layout_text(const LayoutReport& report, LayoutTable kind);
std::string layout_markdown(const LayoutReport& report, LayoutTable kind);
/// One table: brief and full stand for the summary.
std::string layout_csv(const LayoutReport& report, LayoutTable kind);

/// Whether a document says everything of every layout. Of more than 64 layouts it does so only
/// when the table asked for is not brief or summary: a thousand world sizes make 200 MB.
bool layout_details(const LayoutReport& report, LayoutTable kind);

/// "config" and "layouts" of a result document: bytes, balance, padding; with `details` all units,
/// tensors and ranks.
nlohmann::ordered_json layout_config_json(const LayoutReport& report);
nlohmann::ordered_json layouts_json(const LayoutReport& report, bool details);

}  // namespace shardbench::bench

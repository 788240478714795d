#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/compare/compare.h"
#include "bench/compare/table.h"

namespace shardbench::bench {

enum class TableKind { kBrief, kFull, kMemory, kTraffic, kTime, kUnits, kScaling, kPareto, kPeers };

/// Their names: brief full memory traffic time units scaling pareto peers.
const std::vector<std::string>& table_names();
/// Nothing for another name.
std::optional<TableKind> table_kind(const std::string& name);

/// A table with what is said about it.
struct Section {
  std::string title;               ///< empty: none
  std::vector<std::string> above;  ///< paragraphs
  Table table;
  std::vector<std::string> below;
  bool extra = false;  ///< left out of csv: its columns are not those of the other sections
};

struct Screen {
  std::string context;  ///< context_line
  std::vector<Section> sections;
};

/// The context line and the tables of a comparison. Conventions of all tables: MiB = 1024 KiB, time
/// in ms, a dash where a figure does not apply, `n/m` where it was not measured; step time is that
/// of the slowest rank, memory that of the rank with most, bytes sent the mean over ranks. Where
/// ranks differ, the full, memory, traffic and time tables add a line each for min, mean and max. A
/// row that is WRONG or failed says so in place of its figures. What a sweep varies has columns of
/// its own; the brief table has one section per block.
Screen make_screen(TableKind kind, const Comparison& comparison);

/// As text, for a screen of fixed-width letters.
std::string to_text(const Screen& screen);
/// The same as make_screen and to_text.
std::string render_table(TableKind kind, const Comparison& comparison);

/// One block of the default screen: at most 90 columns.
Section brief_section(const Comparison& comparison, const Block& block);
/// Tables over all blocks.
Section full_section(const Comparison& comparison);
Section memory_section(const Comparison& comparison);
Section traffic_section(const Comparison& comparison);
Section time_section(const Comparison& comparison);
/// Throughput against the smallest W of the same strategy and settings; says above it whether the
/// scaling is weak or strong and what the ranks had to themselves.
Section scaling_section(const Comparison& comparison);
/// The units of every row that unshards its weights, from the plan and the recorded calls.
std::vector<Section> units_sections(const Comparison& comparison);
/// Peak against calls of all settings (units, prefetch, bucket cap) of the same strategy and work;
/// marks those that no other one beats in both.
Section pareto_section(const Comparison& comparison);

/// The row that the scaling table measures `row` by: of its strategy and settings, right, with the
/// smallest W. Null if there is none.
const Row* scaling_base(const Comparison& comparison, const Row& row);
/// A line for every W that does fewer tokens per second in total than a smaller one of the same
/// strategy and settings, with what the measurements say of the reason.
std::vector<std::string> slower_with_more_ranks(const Comparison& comparison);
/// A line when the ranks of some block had to share cores; else empty.
std::string crowded_cores(const Comparison& comparison);

/// Ours and, under each row, the peers that do the same job. The brief table has it below where
/// there are peers.
Section peers_section(const Comparison& comparison);

/// What stands in place of a row's figures: "WRONG <first tensor>: ..." or "FAILED ...".
std::string verdict_text(const Row& row);
/// The first row of the block that is right and belongs to the baseline, or null.
const Row* baseline_row(const Comparison& comparison, const Block& block);
/// The rows of all blocks.
std::vector<const Row*> rows_of(const Comparison& comparison);
/// Whether min and max of a spread of bytes, or of ns, look different in a table.
bool bytes_differ(const Spread& spread);
bool times_differ(const Spread& spread);

}  // namespace shardbench::bench

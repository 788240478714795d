#pragma once

#include <optional>
#include <string>

#include "bench/compare/compare.h"

namespace shardbench::bench {

enum class TableKind { kBrief, kFull, kMemory, kTraffic, kTime };

/// brief full memory traffic time; nothing for another name.
std::optional<TableKind> table_kind(const std::string& name);

/// The context line and the tables of a comparison. Conventions of all tables: MiB = 1024 KiB, time
/// in ms, a dash where a figure does not apply, `n/m` where it was not measured; step time is that
/// of the slowest rank, memory that of the rank with most, bytes sent the mean over ranks. Where
/// ranks differ, the full, memory, traffic and time tables add a line each for min, mean and max. A
/// row that is WRONG or failed says so in place of its figures.
std::string render_table(TableKind kind, const Comparison& comparison);

/// One block of the default screen: at most 90 columns.
std::string brief_table(const Comparison& comparison, const Block& block);
/// Tables over all world sizes.
std::string full_table(const Comparison& comparison);
std::string memory_table(const Comparison& comparison);
std::string traffic_table(const Comparison& comparison);
std::string time_table(const Comparison& comparison);

/// What stands in place of a row's figures: "WRONG <first tensor>: ..." or "FAILED ...".
std::string verdict_text(const Row& row);
/// The first row of the block that is right and belongs to the baseline, or null.
const Row* baseline_row(const Comparison& comparison, const Block& block);
/// Whether min and max of a spread of bytes, or of ns, look different in a table.
bool bytes_differ(const Spread& spread);
bool times_differ(const Spread& spread);
/// `value` over the baseline's, two decimals; a dash when there is no baseline or it is 0.
std::string ratio_to(double value, double baseline);

}  // namespace shardbench::bench

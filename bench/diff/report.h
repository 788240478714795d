#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/compare/table.h"
#include "bench/diff/diff.h"

namespace shardbench::bench {

/// row, metric, old, new, change, 95 % interval, verdict; one line per metric. Values in ms and
/// MiB. A row that is not right has one line that says so.
Table diff_table(const Diff& diff);

/// Under the table: how many lines say what, rows that only one side has, what "too few" lacks.
std::string diff_footer(const Diff& diff);

/// One line for stderr when the two sides are not the same experiment; else empty.
std::string diff_warning(const Diff& diff);

/// schema_version, kind, old, new, lines (values in ns, bytes and tokens per second; absent = does
/// not apply), only_old, only_new, differences.
nlohmann::ordered_json diff_json(const Diff& diff, const ResultFile& old_file,
                                 const ResultFile& new_file);

}  // namespace shardbench::bench

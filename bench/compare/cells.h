#pragma once

#include "bench/compare/table.h"

namespace shardbench::bench {

/// Cells of figures: shown with four figures or fewer, kept in the same unit for csv and JSON.
Cell mib_cell(double bytes);
Cell ms_cell(double ns);
Cell ratio_cell(double value);
/// A fraction shown and kept in percent.
Cell percent_cell(double fraction);
/// `value` over `baseline`; a dash when there is no baseline (0).
Cell ratio_to_cell(double value, double baseline);
/// A number without digits after the point.
Cell whole_cell(double value);
/// The cell, or a dash unless it applies.
Cell if_applies(bool applies, Cell cell);

}  // namespace shardbench::bench

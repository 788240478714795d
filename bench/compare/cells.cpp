#include "bench/compare/cells.h"

#include <fmt/format.h>

#include "bench/compare/format.h"

namespace shardbench::bench {

Cell mib_cell(double bytes) { return Cell::of(mib(bytes), bytes / (1024.0 * 1024.0)); }

Cell ms_cell(double ns) { return Cell::of(ms(ns), ns / 1e6); }

Cell ratio_cell(double value) { return Cell::of(ratio(value), value); }

Cell percent_cell(double fraction) { return Cell::of(percent(fraction), fraction * 100); }

Cell ratio_to_cell(double value, double baseline) {
  return baseline > 0 ? ratio_cell(value / baseline) : Cell(kDash);
}

Cell whole_cell(double value) { return Cell::of(fmt::format("{:.0f}", value), value); }

Cell if_applies(bool applies, Cell cell) { return applies ? std::move(cell) : Cell(kDash); }

}  // namespace shardbench::bench

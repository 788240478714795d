#include "bench/compare/utilization.h"

#include <fmt/format.h>

#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "bench/compare/screens.h"

namespace shardbench::bench {

Column mfu_column(double peak_tflops) {
  return {"", "mfu%", false, "mfu_percent", peak_tflops <= 0};
}

Cell mfu_cell(const Row& row, double peak_tflops) {
  if (peak_tflops <= 0) return {};
  return percent_cell(row.utilization(peak_tflops));
}

std::vector<std::string> mfu_notes(const Comparison& comparison) {
  const double peak = comparison.request.peak_tflops;
  if (peak <= 0) return {};
  for (const Row* row : rows_of(comparison)) {
    if (!row->right()) continue;
    const double utilization = row->utilization(peak);
    if (utilization <= 1) continue;
    return {fmt::format(
        "NOTE: {} {} would use {} % of --peak-tflops {}: a rank cannot do more than its peak, so "
        "that figure is too low (it counts one rank, in 10^12 operations per second).",
        row->strategy(), block_title(comparison.request, row->config), percent(utilization), peak)};
  }
  return {};
}

}  // namespace shardbench::bench

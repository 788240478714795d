#pragma once

#include <string>
#include <vector>

#include "bench/compare/compare.h"
#include "bench/compare/table.h"

namespace shardbench::bench {

/// Model FLOPs utilisation of a right row: FLOPs per token x tokens per second / (W x peak of one
/// rank). The column is hidden while no peak is given (`--peak-tflops`), its cells are then empty.
Column mfu_column(double peak_tflops);
Cell mfu_cell(const Row& row, double peak_tflops);

/// A line if some row is above 100 %: then the peak given is too low, and the figure means nothing.
std::vector<std::string> mfu_notes(const Comparison& comparison);

}  // namespace shardbench::bench

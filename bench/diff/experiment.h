#pragma once

#include <string>
#include <vector>

#include "bench/diff/result_file.h"

namespace shardbench::bench {

/// What makes two files two experiments, as "config.steps: 10, 20": everything under config, and of
/// context what a machine, a build or a way to run is. Dates, loads and notes are left out, and so
/// are the autotuner's times; what it chose is compared.
std::vector<std::string> differences_of(const ResultFile& before, const ResultFile& after);

}  // namespace shardbench::bench

#pragma once

#include <string>

#include "bench/cli/program.h"
#include "bench/compare/request.h"

namespace shardbench::cli {

/// "76 training runs of 2 + 10 steps: 4 references, 3 strategies x 12 combinations x 2
/// repetitions".
std::string count_of_runs(const bench::Request& request, const Program& program);

/// What `compare --dry-run` says, to stdout in one of the formats of `compare`: every row with the
/// states and bytes that the formulas give it.
void print_plan(const bench::Request& request, const Program& program, const std::string& format);

}  // namespace shardbench::cli

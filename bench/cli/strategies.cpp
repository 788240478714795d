#include "bench/cli/strategies.h"

#include "shardbench.h"

namespace shardbench::cli {

train::Registry all_strategies() { return shardbench::all_strategies(); }

}  // namespace shardbench::cli

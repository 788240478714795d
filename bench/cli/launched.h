#pragma once

#include "bench/cli/program.h"
#include "common/comm/launch/launched.h"

namespace shardbench::cli {

/// The program as one rank of those that a launcher started: all run the same command, rank 0
/// speaks. Options that differ between ranks are refused by name; what ends one rank ends all, with
/// one line. `program` lacks its ranks still. Returns the exit code. Throws UserError when the
/// ranks do not come together.
int run_launched(Program& program, const comm::LaunchEnvironment& found,
                 const comm::OpenStore& open_store);

}  // namespace shardbench::cli

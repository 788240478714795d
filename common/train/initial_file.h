#pragma once

#include <string>

#include "common/comm/launch/ranks.h"
#include "common/train/config.h"

namespace shardbench::train {

/// Why there is no file, or nothing.
struct InitialFile {
  std::string error;
  int signal = 0;
};

/// Writes the initial weights of the run's model (fp32, by parameter name, drawn from its seed) to
/// `path` as safetensors, in a process of its own and with no whole model in memory.
InitialFile write_initial_weights(comm::Ranks& ranks, const RunConfig& config,
                                  const std::string& path);

}  // namespace shardbench::train

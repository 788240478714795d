#pragma once

#include <filesystem>
#include <string>

#include "bench/peers/child.h"
#include "common/comm/job.h"

namespace shardbench::bench {

/// What peers run with.
struct PeerTools {
  std::string python;             ///< of the peers' own environment
  std::filesystem::path scripts;  ///< the folder of train.py and collectives.py

  bool has_python() const;
};

/// SHARDBENCH_PEERS_PYTHON, or the one in peers-venv beside the folder of the program.
PeerTools find_peer_tools(const std::string& executable);

/// The failure of a child that did not end well, about "PyTorch DDP": why, in one line, and what to
/// do where something has to be installed (`framework` as bench/peers/setup.sh takes it).
comm::AbortRecord failure_of(const ChildOutcome& outcome, const std::string& framework);
/// Nothing can be run: there is no Python for it.
comm::AbortRecord not_installed(const PeerTools& tools, const std::string& framework);
/// A child that ended well brought nothing usable.
comm::AbortRecord unusable_result(const std::string& why);

}  // namespace shardbench::bench

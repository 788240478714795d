#pragma once

#include <string>
#include <vector>

#include "common/comm/launch/control.h"
#include "common/comm/launch/socket.h"

namespace shardbench::comm {

/// One end of a connection between two ranks.
struct Connection {
  Descriptor socket;  ///< empty: none
  FrameReader reader;
};

/// How the ranks came together: rank 0 has a connection to every other rank, the others have one to
/// rank 0.
struct Meeting {
  std::string token;                    ///< a word that belongs to this job alone
  std::vector<Connection> connections;  ///< by rank
};

/// Rank 0 listens on a free port and tells where; the others call. Throws UserError naming the
/// ranks that have not come in time.
Meeting meet(const Control::Options& options);

/// "rank 3" or "ranks 1, 2".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace shardbench::comm

#pragma once

#include <string>

namespace shardbench {

/// Who the calling thread is: put into log lines and error messages.
struct RankContext {
  int rank = -1;  ///< -1: not a rank (launcher, test main)
  int world_size = 0;
  const char* backend = "";
};

/// The calling thread's context; a rank sets it once when it starts.
RankContext& rank_context();

/// "[rank 1/4 shm] ", or "" outside a rank.
std::string rank_prefix();

}  // namespace shardbench

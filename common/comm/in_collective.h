#pragma once

#include <cstdint>

#include "common/comm/job.h"

namespace shardbench::comm {

/// Shows a rank as being inside a collective while it waits there.
class InCollective {
 public:
  InCollective(Job& job, int rank, CollectiveKind kind, std::int64_t sequence)
      : job_(job), rank_(rank) {
    job_.enter_collective(rank, kind, sequence);
  }
  ~InCollective() { job_.leave_collective(rank_); }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;

 private:
  Job& job_;
  int rank_;
};

}  // namespace shardbench::comm

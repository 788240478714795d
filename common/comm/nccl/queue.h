#pragma once

#include "common/comm/call_spec.h"
#include "common/comm/nccl/gpu_library.h"
#include "common/comm/nccl/plan.h"

namespace shardbench::comm {

/// Where one rank's NCCL calls for a collective go.
struct NcclQueue {
  NcclApi& api;
  NcclHandle comm;
  GpuStream stream;
  int rank;
  int world_size;
};

/// Queues the collective as one NCCL call where one fits, else as one group of calls, a piece each
/// (docs/nccl.md has the table). Every rank makes the same calls. `source` and `target` are device
/// memory; with `packed`, the own pieces of a reduction come one after the other from `target` on.
/// The first error, or kInProgress, or kSuccess; nothing is called where nothing is to be moved.
NcclCode queue_collective(const NcclQueue& queue, const CallSpec& spec, const NcclPlan& plan,
                          const std::byte* source, std::byte* target, bool packed);

/// Whether the call was taken: it may still be on its way.
constexpr bool is_accepted(NcclCode code) {
  return code == NcclCode::kSuccess || code == NcclCode::kInProgress;
}

}  // namespace shardbench::comm

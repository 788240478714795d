#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/job.h"
#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// All-gather of texts, as Group::exchange: blocks until every rank has brought one.
using ExchangeTexts = std::function<std::vector<std::string>(std::string_view)>;

struct NcclOptions {
  CudaApi* cuda = nullptr;  ///< never owned, like the next two; must outlive the communicator
  NcclApi* nccl = nullptr;
  DeviceHooks* hooks = nullptr;
  int device = 0;          ///< this rank's, see choose_device
  ExchangeTexts exchange;  ///< used while the communicator is made
  /// symmetric_empty() gives host memory, for a caller that computes on the CPU.
  bool symmetric_on_host = false;
};

/// NCCL over CUDA streams (docs/nccl.md). Collective: every rank of the job makes its communicators
/// in the same order; several may be at work at once, each has a stream of its own.
///
/// Where buffers are device memory, calls and waits never block the host: a call starts after what
/// the caller's current stream holds when it is issued, and Work::wait makes the current stream
/// wait for it. The deadline of such a wait is not used: a watch of the communicator's own ends the
/// job when a call is older than the job's timeout. Buffers in host memory are bounced through
/// device memory, and the wait for them (and for a barrier) blocks; this is for small texts and
/// figures. quiesce() blocks the host until the calls of this rank are complete.
///
/// Differences from other backends: sums are added in NCCL's order, so |difference| from the exact
/// sum is at most (W-1) eps sum|x_i| (bf16 and fp16: NCCL may round after each addition), and not
/// the same bits for W > 2; the last arrival is when completion was seen; calls that do not match
/// end in a timeout. No wire matrix: NCCL does not tell what it sends (the recorder reports -1).
///
/// Throws UserError for bad options, JobAborted when ranks do not come within the job's timeout.
std::unique_ptr<Communicator> make_nccl(std::shared_ptr<Job> job, int rank, NcclOptions options);

/// The device for the rank `host_rank` of `host_ranks` on this host: its number. Throws UserError
/// when there is none, or fewer than ranks, unless NCCL_HOSTID is set (distinct in every rank, so
/// that NCCL takes them for hosts): then ranks share devices in turn.
int choose_device(CudaApi& cuda, int host_rank, int host_ranks);

/// Hooks without LibTorch: the default stream, CUDA's stream-ordered allocator, no additions (so
/// `accumulate` is refused with a UserError).
std::unique_ptr<DeviceHooks> plain_hooks(CudaApi& cuda);

/// Texts over a communicator that moves host memory, for the launchers that have one: an
/// ExchangeTexts. `comm` must outlive it.
ExchangeTexts exchange_over(Communicator& comm);

}  // namespace shardbench::comm

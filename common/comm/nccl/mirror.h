#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "common/comm/nccl/cuda_stream.h"
#include "common/comm/nccl/plan.h"
#include "common/comm/nccl/scratch.h"

namespace shardbench::comm {

/// What copies between host and device need. `copies` is a stream for them alone, so that they wait
/// for no collective; `await` blocks until an event of it has passed and throws when the job ends.
struct CopyContext {
  CudaApi& cuda;
  DeviceHooks& hooks;
  CudaStream& copies;
  std::function<void(GpuEvent)> await;
};

/// Device memory that stands for a buffer in host memory while a collective is under way. Owning,
/// movable.
class HostMirror {
 public:
  HostMirror(const CopyContext& context, std::byte* host, std::size_t bytes)
      : host_(host), memory_(context.hooks, bytes, context.copies.get()), bytes_(bytes) {}

  std::byte* device() const { return memory_.data(); }
  /// Device memory gets what the host's holds. Blocks.
  void upload(const CopyContext& context) const;
  /// The host's gets these bytes of it. Blocks.
  void download(const CopyContext& context, const std::vector<ByteRange>& ranges) const;

 private:
  std::byte* host_;
  ScratchMemory memory_;
  std::size_t bytes_;
};

}  // namespace shardbench::comm

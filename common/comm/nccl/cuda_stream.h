#pragma once

#include <string_view>
#include <vector>

#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// Throws InvariantError "cudaEventRecord: out of memory" unless the call went well.
void check_cuda(CudaApi& cuda, CudaCode code, std::string_view call);

/// A stream of its own and the events recorded there. Used by one thread, except passed().
class CudaStream {
 public:
  explicit CudaStream(CudaApi& cuda);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  GpuStream get() const { return stream_; }
  /// What is queued here from now on starts after what `other` holds now.
  void follow(GpuStream other);
  /// An event that passes when all that is queued now is done; give it back with recycle().
  GpuEvent mark();
  void recycle(GpuEvent event) { free_.push_back(event); }
  bool passed(GpuEvent event) const;

 private:
  GpuEvent take_event();

  CudaApi& cuda_;
  GpuStream stream_ = nullptr;
  GpuEvent fence_ = nullptr;
  std::vector<GpuEvent> all_;
  std::vector<GpuEvent> free_;
};

}  // namespace shardbench::comm

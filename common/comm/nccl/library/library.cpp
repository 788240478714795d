// The entry point of libshardbench_nccl.so.
#include <nvtx3/nvToolsExt.h>

#include "common/comm/nccl/library/parts.h"

namespace shardbench::comm {
namespace {

class NvtxRanges : public ProfilerRanges {
 public:
  void push(const char* name) override { nvtxRangePushA(name); }
  void pop() override { nvtxRangePop(); }
};

}  // namespace

ProfilerRanges& nvtx_ranges() {
  static NvtxRanges ranges;
  return ranges;
}

}  // namespace shardbench::comm

extern "C" __attribute__((visibility("default"))) const shardbench::comm::GpuLibrary*
shardbench_gpu_library() {
  using namespace shardbench::comm;
  static const GpuLibrary library{SHARDBENCH_VERSION, &cuda_runtime(), &nccl_library(),
                                  &nvtx_ranges(), torch_cuda()};
  return &library;
}

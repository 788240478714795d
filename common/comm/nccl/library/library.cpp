// The entry point of libshardbench_nccl.so.
#include <nvtx3/nvToolsExt.h>

#include "common/comm/nccl/library/parts.h"

namespace shardbench::comm {
namespace {

class NvtxRanges : public ProfilerRanges {
 public:
  std::uint64_t start(const char* name) override { return nvtxRangeStartA(name); }
  void end(std::uint64_t range) override { nvtxRangeEnd(range); }
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

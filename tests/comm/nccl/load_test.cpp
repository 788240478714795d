// Opening libshardbench_nccl.so, or the lack of it. No device is needed.
#include "common/comm/nccl/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/comm/nccl/nccl.h"
#include "common/core/build_info.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The message of the UserError that opening the library throws.
std::string refusal() {
  try {
    gpu_library();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(LoadGpuLibrary, AMissingOneIsNamedInOneLine) {
  if (!has_gpu_library()) {
    EXPECT_THAT(refusal(), HasSubstr("this build has no nccl backend"));
    return;
  }
  setenv("SHARDBENCH_GPU_LIBRARY", "/nowhere/lib.so", 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("cannot open the nccl backend: /nowhere/lib.so"),
                               HasSubstr("SHARDBENCH_GPU_LIBRARY"), Not(HasSubstr("\n"))));
  unsetenv("SHARDBENCH_GPU_LIBRARY");
}

TEST(LoadGpuLibrary, AnotherLibraryIsRefused) {
  if (!has_gpu_library()) return;
  setenv("SHARDBENCH_GPU_LIBRARY", "libc.so.6", 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("libc.so.6"), HasSubstr("build both together")));
  unsetenv("SHARDBENCH_GPU_LIBRARY");
}

#ifdef SHARDBENCH_NCCL_WITHOUT_TORCH
/// CUDA's runtime and NCCL load and answer without a device.
TEST(LoadGpuLibrary, TheLibrariesAnswer) {
  const GpuLibrary& library = gpu_library();
  EXPECT_EQ(library.version, build_info().version);
  EXPECT_EQ(library.torch, nullptr);
  EXPECT_EQ(&gpu_library(), &library);
  EXPECT_EQ(library.cuda->describe(CudaCode::kNotReady), "device not ready");
  EXPECT_EQ(library.nccl->describe(NcclCode::kInvalidUsage, nullptr).substr(0, 13),
            "invalid usage");
  NcclHandle comm = nullptr;
  EXPECT_EQ(library.nccl->init_rank(comm, 1, "too short", 0), NcclCode::kInvalidArgument);
  int devices = 0;
  if (library.cuda->device_count(devices) == CudaCode::kSuccess && devices > 0) return;
  EXPECT_THROW(choose_device(*library.cuda, 0, 1), UserError);
}
#endif

}  // namespace
}  // namespace shardbench::comm

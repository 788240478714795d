#include "common/comm/nccl/load.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "common/core/build_info.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

constexpr const char* kFile = "libshardbench_nccl.so";
constexpr const char* kVariable = "SHARDBENCH_GPU_LIBRARY";

/// Where the library may lie, the first that exists counts.
std::string library_file() {
  if (const char* given = std::getenv(kVariable); given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& file : {program / kFile, program / ".." / "lib" / kFile}) {
    if (std::filesystem::exists(file, ignored)) return file.lexically_normal().string();
  }
  return kFile;
}

const GpuLibrary& open_library() {
  const std::string file = library_file();
  // Global: LibTorch looks for its CUDA side among all that is loaded.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    throw UserError::format("cannot open the nccl backend: {}; install what is missing, or set {}",
                            why == nullptr ? file : why, kVariable);
  }
  using Get = const GpuLibrary*();
  const auto get = reinterpret_cast<Get*>(dlsym(library, "shardbench_gpu_library"));
  const GpuLibrary* const found = get == nullptr ? nullptr : get();
  if (found == nullptr || found->version != build_info().version) {
    throw UserError::format("{} belongs to shardbench {}, this is {}: build both together", file,
                            found == nullptr ? "of another kind" : found->version,
                            build_info().version);
  }
  return *found;
}

}  // namespace

bool has_gpu_library() { return true; }

const GpuLibrary& gpu_library() {
  static const GpuLibrary& library = open_library();
  return library;
}

}  // namespace shardbench::comm

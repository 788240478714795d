#include "common/comm/mpi/load.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::comm {
namespace {

namespace fs = std::filesystem;

/// Places in order; the last has no folder: the dynamic loader's own search.
std::vector<fs::path> candidates(const std::string& file) {
  std::vector<fs::path> paths;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path folder = program.parent_path();
    paths = {folder / file, folder / "../lib" / file, folder / ".." / SHARDBENCH_LIBDIR / file};
  }
  paths.emplace_back(file);
  return paths;
}

void* open_first(const std::string& implementation) {
  const std::string file = "libshardbench_mpi_" + implementation + ".so";
  for (const fs::path& path : candidates(file)) {
    if (path.has_parent_path() && !fs::exists(path)) continue;
    // Global: MPI's own plug-ins look for its symbols.
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    throw UserError::format("cannot load MPI: {}; install the {} that this was built with",
                            dlerror(), implementation);
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> built_mpi() {
  std::istringstream names(SHARDBENCH_BUILT_MPI);
  std::vector<std::string> built;
  for (std::string name; names >> name;) built.push_back(name);
  return built;
}

const shardbench_mpi_api& load_mpi(const std::string& implementation) {
  const std::vector<std::string> built = built_mpi();
  if (std::ranges::count(built, implementation) == 0) {
    throw UserError::format(
        "this build has no support for {}, only for {}: start it with that mpirun, or install {} "
        "and build again",
        implementation, join(built), implementation);
  }
  void* const library = open_first(implementation);
  const auto get_api =
      reinterpret_cast<shardbench_mpi_get_api_fn>(dlsym(library, SHARDBENCH_MPI_ENTRY));
  const shardbench_mpi_api* const api = get_api == nullptr ? nullptr : get_api();
  if (api == nullptr || api->abi_version != SHARDBENCH_MPI_ABI) {
    throw UserError::format("libshardbench_mpi_{}.so belongs to another version: install again",
                            implementation);
  }
  return *api;
}

}  // namespace shardbench::comm

// Stands in for load.cpp where CMake found no MPI.
#include "common/comm/mpi/load.h"
#include "common/core/error.h"

namespace shardbench::comm {

std::vector<std::string> built_mpi() { return {}; }

const shardbench_mpi_api& load_mpi(const std::string& implementation) {
  throw UserError::format(
      "built without MPI: install {} with its headers, then configure and build again",
      implementation);
}

}  // namespace shardbench::comm

#pragma once

#include <string>
#include <vector>

#include "common/comm/launch/environment.h"
#include "common/comm/mpi/api.h"

namespace shardbench::comm {

/// Which MPI started this process.
struct MpiLaunch {
  std::string implementation;  ///< "openmpi" or "mpich"
  int ranks = 0;               ///< processes that its launcher speaks of; 0: it does not say
};

/// $SHARDBENCH_MPI decides; without it Open MPI is known by OMPI_COMM_WORLD_SIZE or PMIX_RANK,
/// MPICH by PMI_RANK or PMI_SIZE. Where nothing tells (srun), it is the only one of `built`. Throws
/// UserError naming the choices.
MpiLaunch detect_mpi(const std::vector<std::string>& built,
                     const ReadVariable& read = read_environment);

/// The implementations that this build has libraries for.
std::vector<std::string> built_mpi();

/// Opens libshardbench_mpi_IMPLEMENTATION.so, and with it that MPI: beside the program, in its
/// ../lib, in the folder that libraries are installed to, then where the loader looks. Never
/// closed. Throws UserError in one line when there is none or its MPI is missing.
const shardbench_mpi_api& load_mpi(const std::string& implementation);

}  // namespace shardbench::comm

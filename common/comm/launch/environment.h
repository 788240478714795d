#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace shardbench::comm {

/// What started this process.
enum class Launcher : std::uint8_t {
  kNone,      ///< nobody: the program makes its own ranks
  kMpi,       ///< mpirun, or srun with an MPI plug-in
  kTorchrun,  ///< torchrun, or the same variables set by hand
};

/// The rank that a launcher made this process, as far as its variables tell.
struct LaunchEnvironment {
  Launcher launcher = Launcher::kNone;
  int rank = 0;        ///< kTorchrun; an MPI library knows it after its start
  int world_size = 1;  ///< likewise
  std::string master_address;
  int master_port = 0;
  bool store_is_served = false;  ///< torchrun's agent serves the store; otherwise rank 0 does
  std::string run;               ///< names this run among others that use the same store
};

/// Reads one environment variable; none when it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> read_environment(const char* name);

/// mpirun and srun are known by OMPI_COMM_WORLD_SIZE, PMI_SIZE or PMIX_RANK; torchrun by RANK,
/// WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which win when both are there. Throws UserError naming
/// the variable that is missing or makes no sense.
LaunchEnvironment detect_launcher(const ReadVariable& read = read_environment);

}  // namespace shardbench::comm

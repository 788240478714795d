#include <algorithm>
#include <charconv>

#include "common/comm/mpi/load.h"
#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::comm {
namespace {

const std::vector<std::string> kKnown = {"openmpi", "mpich"};

int number_in(const ReadVariable& read, const char* name) {
  const std::optional<std::string> text = read(name);
  int value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return std::max(value, 0);
}

std::string chosen_by_user(const std::string& name) {
  if (std::ranges::count(kKnown, name) > 0) return name;
  throw UserError::format("SHARDBENCH_MPI '{}': choose from {}{}", name, join(kKnown),
                          did_you_mean(name, kKnown));
}

}  // namespace

MpiLaunch detect_mpi(const std::vector<std::string>& built, const ReadVariable& read) {
  const std::optional<std::string> chosen = read("SHARDBENCH_MPI");
  const int openmpi_ranks = number_in(read, "OMPI_COMM_WORLD_SIZE");
  const int hydra_ranks = number_in(read, "PMI_SIZE");
  const int slurm_ranks = number_in(read, "SLURM_STEP_NUM_TASKS");
  const int ranks = openmpi_ranks > 0 ? openmpi_ranks : hydra_ranks > 0 ? hydra_ranks : slurm_ranks;
  if (chosen && !chosen->empty()) return {chosen_by_user(*chosen), ranks};
  if (openmpi_ranks > 0 || read("PMIX_RANK")) return {"openmpi", ranks};
  if (hydra_ranks > 0 || read("PMI_RANK")) return {"mpich", ranks};
  if (built.size() == 1) return {built.front(), ranks};
  throw UserError::format(
      "cannot tell which MPI to use: no mpirun started this process; set SHARDBENCH_MPI to {}",
      join(built.empty() ? kKnown : built, " or "));
}

}  // namespace shardbench::comm

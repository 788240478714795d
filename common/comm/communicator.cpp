#include "common/comm/communicator.h"

#include "common/core/error.h"

namespace shardbench::comm {

SymmetricMemory Communicator::shared_empty(std::size_t, std::size_t) {
  throw UserError::format(
      "--collectives in-place: ranks of backend {} share no memory; take --backend shm (one host), "
      "or --collectives direct",
      backend());
}

}  // namespace shardbench::comm

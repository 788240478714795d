#pragma once

#include <cstddef>
#include <memory>

#include "common/comm/mpi/mpi.h"
#include "common/comm/mpi/placement.h"
#include "common/comm/mpi/ranges.h"

namespace shardbench::comm {

/// Sizes in bytes; every rank must use the same ones.
struct MpiOptions {
  MessageLimits limits = {};
  std::size_t chunk = std::size_t{1} << 20;  ///< of a reduction, per peer
  /// Up to this size two ranks exchange an all_reduce's whole payload and both sum it: as many
  /// bytes on the wire as with slices, and one message time less. Both implementations send this
  /// much at once, without asking the receiver first.
  std::size_t exchange = 4000;
  MpiRoute route = MpiRoute::kAuto;
  std::size_t relayed = std::size_t{1} << 20;        ///< payload from which kAuto is hierarchical
  std::size_t relay_chunk = std::size_t{256} << 10;  ///< of a sum that goes from host to host
};

/// make_mpi with other sizes than the measured best, for tests.
std::unique_ptr<Communicator> make_mpi(std::shared_ptr<MpiRuntime> runtime,
                                       std::shared_ptr<Job> job, const MpiOptions& options,
                                       HostShare share = {});

}  // namespace shardbench::comm

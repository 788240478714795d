#pragma once

#include <cstdint>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/sharding/flat.h"
#include "common/train/config.h"

namespace shardbench::train {

struct InitContext {
  InitMode mode = InitMode::kDeferred;
  std::uint64_t seed = 1;  ///< rank 0's
  comm::Communicator* comm = nullptr;
};

/// Fills this rank's flat memory, which must be zeroed, with initial values; under a broadcasting
/// mode it also gives the model rank 0's buffers. Collective. Extra memory while it runs:
/// deferred none, broadcast one whole model, broadcast-tensor the largest tensor.
void initialize_values(const Model& model, const sharding::FlatLayout& layout,
                       const InitContext& context, float* memory);

/// Gives every rank rank 0's buffers: one message. Does nothing for a model without buffers.
void share_buffers(const Model& model, comm::Communicator& comm, Phase phase);

}  // namespace shardbench::train

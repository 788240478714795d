#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// Gives memory of its own to whoever asks for symmetric memory, so that every call on `inner` goes
/// through staging, as for callers that cannot choose where their tensors lie. The same results.
std::unique_ptr<Communicator> with_staging(std::unique_ptr<Communicator> inner);

}  // namespace shardbench::comm

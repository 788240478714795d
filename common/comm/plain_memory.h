#pragma once

#include <cstddef>

#include "common/comm/communicator.h"
#include "common/memory/category.h"

namespace shardbench::comm {

/// This rank's own memory from the system, booked under `category`: for backends whose peers do not
/// reach each other's memory. Starts on 64 bytes.
SymmetricMemory plain_memory(std::size_t bytes,
                             memory::Category category = memory::current_category());
/// The same with only `booked` bytes put down.
SymmetricMemory plain_memory(std::size_t bytes, std::size_t booked, memory::Category category);

}  // namespace shardbench::comm

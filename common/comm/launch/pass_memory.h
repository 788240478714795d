#pragma once

#include <chrono>
#include <string>

#include "common/core/descriptor.h"

namespace shardbench::comm {

/// Hands an open file to other processes of this host and network namespace through a socket that
/// has a name only as long as it is open.
class MemoryServer {
 public:
  /// Throws UserError when the name is taken.
  explicit MemoryServer(const std::string& name);
  /// Gives `memory` to `processes` callers. Throws UserError when they do not come in time.
  void serve(int memory, int processes, std::chrono::milliseconds timeout);

 private:
  Descriptor socket_;
  std::string name_;
};

/// The file that MemoryServer(name) serves. Throws UserError when nobody does.
Descriptor fetch_memory(const std::string& name, std::chrono::milliseconds timeout);

}  // namespace shardbench::comm

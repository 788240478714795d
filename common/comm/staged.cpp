#include "common/comm/staged.h"

#include "common/comm/call_shape.h"
#include "common/comm/plain_memory.h"

namespace shardbench::comm {
namespace {

class StagedCommunicator : public Decorator<Communicator> {
 public:
  using Decorator::Decorator;
  SymmetricMemory symmetric_empty(std::size_t bytes) override { return plain_memory(bytes); }

 protected:
  Work after_issue(const CallShape&, CallTag, std::chrono::steady_clock::time_point,
                   Work work) override {
    return work;
  }
};

}  // namespace

std::unique_ptr<Communicator> with_staging(std::unique_ptr<Communicator> inner) {
  return std::make_unique<StagedCommunicator>(std::move(inner));
}

}  // namespace shardbench::comm

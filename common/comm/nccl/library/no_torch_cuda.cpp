#include "common/comm/nccl/library/parts.h"

namespace shardbench::comm {

TorchCuda* torch_cuda() { return nullptr; }

}  // namespace shardbench::comm

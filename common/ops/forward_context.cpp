#include "common/ops/forward_context.h"

namespace shardbench::ops {

ForwardContext& forward_context() {
  thread_local ForwardContext context;
  return context;
}

}  // namespace shardbench::ops

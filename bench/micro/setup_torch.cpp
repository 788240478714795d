#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "bench/micro/micro.h"
#include "common/memory/allocator.h"

namespace shardbench::micro {

void set_up() {
  at::set_num_threads(1);
  memory::install_allocator();
  at::manual_seed(1);
}

std::string torch_version() { return SHARDBENCH_TORCH_VERSION; }

}  // namespace shardbench::micro

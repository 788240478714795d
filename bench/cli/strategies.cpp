#include "bench/cli/strategies.h"

#include "common/train/single.h"
#include "ddp/strategy.h"
#include "fsdp/strategy.h"
#include "zero3/strategy.h"

namespace shardbench::cli {

train::Registry all_strategies() {
  train::Registry registry;
  ddp::register_strategy(registry);
  zero3::register_zero1(registry);
  zero3::register_zero2(registry);
  zero3::register_strategy(registry);
  fsdp::register_strategy(registry);
  train::register_single(registry);
  return registry;
}

}  // namespace shardbench::cli

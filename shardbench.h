#pragma once

/// All that a program needs that trains with shardbench, but the adapter for torch::nn modules
/// (common/torch_nn/adapter.h). Link shardbench::shardbench.

#include "common/comm/job.h"
#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "common/memory/allocator.h"
#include "common/memory/tracker.h"
#include "common/models/build.h"
#include "common/modules/autograd.h"
#include "common/modules/layers/attention.h"
#include "common/modules/layers/batch_norm.h"
#include "common/modules/layers/conv.h"
#include "common/modules/layers/dropout.h"
#include "common/modules/layers/embedding.h"
#include "common/modules/layers/functional.h"
#include "common/modules/layers/layer_norm.h"
#include "common/modules/layers/linear.h"
#include "common/modules/layers/llama_attention.h"
#include "common/modules/layers/llama_block.h"
#include "common/modules/layers/mlp.h"
#include "common/modules/layers/pool.h"
#include "common/modules/layers/rms_norm.h"
#include "common/modules/layers/rotary_table.h"
#include "common/modules/layers/swiglu.h"
#include "common/modules/layers/transformer_block.h"
#include "common/modules/module.h"
#include "common/train/registry.h"
#include "common/train/session.h"
#include "common/train/single.h"
#include "ddp/strategy.h"
#include "fsdp/strategy.h"
#include "zero3/strategy.h"

namespace shardbench {

/// Every strategy by name: ddp, zero1, zero2, zero3, fsdp, and single (one rank).
inline train::Registry all_strategies() {
  train::Registry registry;
  ddp::register_strategy(registry);
  zero3::register_zero1(registry);
  zero3::register_zero2(registry);
  zero3::register_strategy(registry);
  fsdp::register_strategy(registry);
  train::register_single(registry);
  return registry;
}

}  // namespace shardbench

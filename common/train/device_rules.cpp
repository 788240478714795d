#include "common/train/device_rules.h"

#include "common/core/error.h"

namespace shardbench::train {

namespace {

void refuse(bool asked, const char* what, const char* why) {
  if (asked) throw UserError::format("{} with --device cuda: {}", what, why);
}

}  // namespace

std::string to_string(DeviceKind device) { return device == DeviceKind::kCuda ? "cuda" : "cpu"; }

void validate_device(const RunConfig& config) {
  if (config.device == DeviceKind::kCpu) return;
  if (config.backend != "nccl") {
    throw UserError::format(
        "--device cuda with --backend {}: only NCCL moves bytes between GPUs; give --backend nccl",
        config.backend);
  }
  const CollectiveMode collectives = config.options.collectives;
  refuse(collectives == CollectiveMode::kInPlace, "--collectives in-place",
         "GPUs read no weights in each other's memory; take direct");
  refuse(collectives == CollectiveMode::kStaged, "--collectives staged",
         "NCCL has its own buffers; take direct");
  refuse(config.link.has_value(), "--link", "NCCL has a real network; leave it out");
  refuse(config.comm_thread, "--comm-thread",
         "calls are carried by a stream of the GPU's; leave it out");
  refuse(config.tuning.mode != ops::TuneMode::kOff, "--autotune on or fixed",
         "its candidates are kernels of the CPU; take --autotune off, or leave it out");
  refuse(config.deterministic, "--deterministic",
         "LibTorch's deterministic mode has not been tried on a GPU; leave it out");
  refuse(config.options.sparse_embedding, "--sparse-embedding",
         "the host sorts token ids and adds their rows up; leave it out");
  refuse(config.options.optimizer_in_backward, "--optimizer-in-backward",
         "ranks agree on the host what a unit has used, which would wait for the GPU in every "
         "unit; leave it out");
}

}  // namespace shardbench::train

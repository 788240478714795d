#include "common/ops/on_host.h"

#include <atomic>

namespace shardbench::ops {

namespace {

std::atomic<int> portable_only{0};

}  // namespace

bool on_host(at::Device device) {
  return device.is_cpu() && portable_only.load(std::memory_order_relaxed) == 0;
}

bool on_host(const at::Tensor& tensor) { return on_host(tensor.device()); }

PortableOnly::PortableOnly() { ++portable_only; }
PortableOnly::~PortableOnly() { --portable_only; }

}  // namespace shardbench::ops

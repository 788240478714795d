#include "common/comm/nccl/over_group.h"

#include <string>
#include <utility>
#include <vector>

#include "common/comm/nccl/load.h"
#include "common/core/error.h"

namespace shardbench::comm {

DeviceHooks& hooks_on(const GpuLibrary& library, int device) {
  if (library.torch != nullptr) {
    library.torch->use_device(device);
    return library.torch->hooks();
  }
  static const std::unique_ptr<DeviceHooks> plain = plain_hooks(*library.cuda);
  return *plain;
}

namespace {

int device_of(const GpuLibrary& library, Group& group) {
  return choose_device(*library.cuda, group.host_rank(), group.host_job()->world_size());
}

}  // namespace

void require_device(Group& group) { device_of(gpu_library(), group); }

namespace {

Transport transport(Group& group, std::shared_ptr<Job> job, int rank, ExchangeTexts exchange,
                    bool on_device) {
  const GpuLibrary& library = gpu_library();
  if (on_device && library.torch == nullptr) {
    throw UserError(
        "--device cuda: the nccl backend was built without LibTorch's CUDA side, so nothing can be "
        "computed on a GPU; build it with a LibTorch that has libtorch_cuda");
  }
  const int device = device_of(library, group);
  NcclOptions options;
  options.cuda = library.cuda;
  options.nccl = library.nccl;
  options.hooks = &hooks_on(library, device);
  options.device = device;
  options.exchange = std::move(exchange);
  options.symmetric_on_host = !on_device;
  return {make_nccl(std::move(job), rank, std::move(options)),
          nullptr,
          {on_device ? &library : nullptr, device}};
}

}  // namespace

Transport nccl_transport(Group& group, bool on_device) {
  const auto exchange = [&group](std::string_view text) { return group.exchange(text); };
  return transport(group, group.job(), group.rank(), exchange, on_device);
}

Transport nccl_transport_alone(Group& group, const std::shared_ptr<Job>& job) {
  const auto own = [](std::string_view text) {
    return std::vector<std::string>{std::string(text)};
  };
  return transport(group, job, 0, own, /*on_device=*/true);
}

}  // namespace shardbench::comm

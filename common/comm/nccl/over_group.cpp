#include "common/comm/nccl/over_group.h"

#include "common/comm/nccl/load.h"

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

std::unique_ptr<Communicator> nccl_over(Group& group, bool symmetric_on_host) {
  const GpuLibrary& library = gpu_library();
  const int device = device_of(library, group);
  NcclOptions options;
  options.cuda = library.cuda;
  options.nccl = library.nccl;
  options.hooks = &hooks_on(library, device);
  options.device = device;
  options.exchange = [&group](std::string_view text) { return group.exchange(text); };
  options.symmetric_on_host = symmetric_on_host;
  return make_nccl(group.job(), group.rank(), std::move(options));
}

}  // namespace shardbench::comm

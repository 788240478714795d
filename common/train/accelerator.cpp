#include "common/train/accelerator.h"

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/format.h"
#include "common/memory/allocator.h"

namespace shardbench::train {

namespace {

/// Of this process; LibTorch's allocator tells it until the very end.
comm::DeviceMemoryBook& memory_book() {
  static auto* const book = new comm::DeviceMemoryBook;
  return *book;
}

}  // namespace

at::Device device_of(const comm::RankDevice& device) {
  if (device.library == nullptr) return at::kCPU;
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device.number));
}

Accelerator::Accelerator(const comm::RankDevice& device)
    : device_(device_of(device)),
      clock_(*device.library->cuda, device.library->torch->hooks()),
      position_(device.library->ranges) {
  device.library->torch->watch_memory(&memory_book());
  memory::retag_on_devices_by(
      [](const void* data, memory::Category category) { memory_book().retag(data, category); });
}

std::string out_of_memory_text() {
  const auto refusal = memory_book().refusal();
  return refusal ? out_of_memory_text(*refusal) : std::string();
}

std::string out_of_memory_text(const comm::DeviceMemoryBook::Refusal& refusal) {
  std::string used;
  for (int i = 0; i < memory::kCategoryCount; ++i) {
    const std::int64_t bytes = refusal.live[static_cast<std::size_t>(i)];
    if (bytes == 0) continue;
    used += fmt::format("{}{} {}", used.empty() ? "" : ", ",
                        memory::name_of(static_cast<memory::Category>(i)), format_mib(bytes));
  }
  // What an operation asks for gets its category when the operation has returned.
  const std::string_view wanted = refusal.category == memory::Category::kOther
                                      ? "activation or temp"
                                      : memory::name_of(refusal.category);
  return fmt::format(
      "out of GPU memory: {} MiB more wanted for {}, of {} MiB on the device {} are free; in use, "
      "MiB: {}; take a smaller --batch, more ranks or --strategy fsdp",
      format_mib(refusal.bytes), wanted, format_mib(refusal.total), format_mib(refusal.free),
      used.empty() ? "nothing" : used);
}

}  // namespace shardbench::train

#include "tests/support/guarded_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "common/core/error.h"

namespace shardbench::testing {

namespace {

constexpr auto kType = at::DeviceType::PrivateUse1;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kRegionBytes = std::size_t{1} << 36;  ///< of addresses

/// The device's memory: one range of addresses, pages of which are given out once and never again.
class Region {
 public:
  static Region& instance() {
    static auto* const region = new Region;  // tensors may be freed at the very end
    return *region;
  }

  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
    SHARDBENCH_CHECK_LE(used_ + size, kRegionBytes);
    char* const data = base_ + used_;
    used_ += size;
    blocks_[data] = size;
    protect(data, size, PROT_READ | PROT_WRITE);
    std::memset(data, 0xFF, bytes);
    if (open_ == 0) protect(data, size, PROT_NONE);
    return data;
  }
  void free(void* data) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(static_cast<char*>(data));
    madvise(block->first, block->second, MADV_DONTNEED);
    blocks_.erase(block);
  }
  bool holds(const void* data) const {
    const char* const address = static_cast<const char*>(data);
    return address >= base_ && address < base_ + kRegionBytes;
  }
  /// All of it can be read and written until the same number of close().
  void open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) protect(base_, used_, PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) protect(base_, used_, PROT_NONE);
  }

 private:
  Region() {
    base_ = static_cast<char*>(
        mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    SHARDBENCH_CHECK(base_ != MAP_FAILED);
  }
  static void protect(void* data, std::size_t size, int how) {
    SHARDBENCH_CHECK(size == 0 || mprotect(data, size, how) == 0);
  }

  std::mutex mutex_;
  char* base_ = nullptr;
  std::size_t used_ = 0;
  std::map<char*, std::size_t> blocks_;
  int open_ = 0;
};

struct Access {
  Access() { Region::instance().open(); }
  ~Access() { Region::instance().close(); }
};

struct GuardedHooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
};

std::atomic<int> host_reads{0};

void release(void* data) {
  if (data != nullptr) Region::instance().free(data);
}

class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : Region::instance().allocate(bytes);
    return {data, data, &release, guarded_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    guarded_copy(to, from, bytes);
  }
};

c10::Allocator& guarded_allocator() {
  static GuardedAllocator allocator;
  return allocator;
}

/// The same elements as a tensor of the CPU, over the same memory.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu() || tensor.numel() == 0) {
    return tensor.is_cpu() ? tensor : at::empty(tensor.sizes(), tensor.scalar_type());
  }
  return at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU))
      .target_device(at::Device(at::kCPU))
      .make_tensor();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.is_cpu()) ++host_reads;
  const Access access;
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) {  // the result of an operation that finds its own shape
    SHARDBENCH_CHECK_EQ(to.numel(), 0);
    const at::Tensor memory = at::empty(from.sizes(), to.options());
    to.unsafeGetTensorImpl()->set_storage_keep_dtype(memory.storage());
    to.unsafeGetTensorImpl()->set_sizes_contiguous(from.sizes());
  }
  return copy_from(from, to, false);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &guarded_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &guarded_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}

/// In its own memory, on the thread of whoever asks.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const int before = host_reads;  // the copies of the stand-in itself are not the host's reads
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  host_reads = before;
  if (op.schema().name() == "aten::_local_scalar_dense") ++host_reads;
}

}  // namespace

at::Device guarded_device() {
  // Autograd asks which device of LibTorch's is an accelerator.
  static const bool registered = [] {
    c10::register_privateuse1_backend("guarded");
    at::RegisterPrivateUse1HooksInterface(new GuardedHooks);  // LibTorch keeps it
    return true;
  }();
  return at::Device(kType, registered ? 0 : -1);
}
void* guarded_allocate(std::size_t bytes) { return Region::instance().allocate(bytes); }
void guarded_free(void* data) { Region::instance().free(data); }
bool is_guarded(const void* data) { return Region::instance().holds(data); }
void guarded_copy(void* to, const void* from, std::size_t bytes) {
  const Access access;
  std::memcpy(to, from, bytes);
}
int reads_by_host() { return host_reads; }

}  // namespace shardbench::testing

namespace at {
C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::NoOpDeviceGuardImpl<at::DeviceType::PrivateUse1>)
}  // namespace at

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace shardbench::testing;  // NOLINT
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("view",
         static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&shardbench::testing::run_on_cpu>());
}

#include "common/memory/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "common/core/error.h"
#include "common/memory/tracker.h"

namespace shardbench::memory {
namespace {

constexpr std::size_t kUnit = 64;  // header size and alignment of all data
constexpr std::size_t kStepsPerDoubling = 8;
constexpr std::size_t kClassCount = 512;

/// Stands in front of every block; data begins right behind it.
struct alignas(kUnit) Header {
  Header* next = nullptr;    // in the free list
  std::size_t bytes = 0;     // asked for
  std::size_t unused = 0;    // of these, there only for where data start: booked as kOther
  std::size_t capacity = 0;  // behind the header
  std::size_t size_class = 0;
  std::atomic<Category> category{Category::kOther};

  std::int64_t used_bytes() const { return static_cast<std::int64_t>(bytes - unused); }
  void* data() { return reinterpret_cast<std::byte*>(this) + sizeof(Header); }
  static Header* of(void* data) {
    return reinterpret_cast<Header*>(static_cast<std::byte*>(data) - sizeof(Header));
  }
};
static_assert(sizeof(Header) == kUnit);

struct SizeClass {
  std::size_t index;
  std::size_t capacity;  // bytes
};

/// Multiples of 64 bytes up to 512, then eight steps per doubling: at most 1/8 unused.
SizeClass size_class_of(std::size_t bytes) {
  const std::size_t units = (bytes + kUnit - 1) / kUnit;
  if (units <= kStepsPerDoubling) return {units - 1, units * kUnit};
  const auto exponent = static_cast<std::size_t>(std::bit_width(units - 1)) - 1;
  const std::size_t base = std::size_t{1} << exponent;  // base < units <= 2 base
  const std::size_t step = base / kStepsPerDoubling;
  const std::size_t steps = (units - base + step - 1) / step;
  const std::size_t doublings = exponent - 3;
  return {kStepsPerDoubling * (doublings + 1) + steps - 1, (base + steps * step) * kUnit};
}

void free_block(void* data);

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void give_back(void* data) {
    Header* const header = Header::of(data);
    tracker().remove(header->category.load(std::memory_order_relaxed), header->used_bytes());
    if (header->unused > 0) {
      tracker().remove(Category::kOther, static_cast<std::int64_t>(header->unused));
    }
    if (poison_.load(std::memory_order_relaxed)) std::memset(data, 0xFF, header->capacity);
    const std::lock_guard lock(mutex_);
    header->next = free_[header->size_class];
    free_[header->size_class] = header;
    cached_bytes_ += header->capacity;
  }

  void release_cached() {
    const std::lock_guard lock(mutex_);
    for (Header*& list : free_) {
      while (list != nullptr) {
        Header* const header = list;
        list = header->next;
        std::free(header);
      }
    }
    cached_bytes_ = 0;
  }

  void poison(bool on) { poison_.store(on, std::memory_order_relaxed); }
  std::int64_t system_allocations() const {
    return system_allocations_.load(std::memory_order_relaxed);
  }
  std::int64_t cached_bytes() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(cached_bytes_);
  }

 private:
  void* take(std::size_t bytes) {
    // Also catches sizes whose rounding would overflow.
    SHARDBENCH_CHECK_LE(bytes, std::size_t{1} << 47);
    const SizeClass wanted = size_class_of(bytes);
    Header* header = take_cached(wanted);
    if (header == nullptr) header = take_from_system(wanted);
    header->bytes = bytes;
    header->unused = 0;
    header->category.store(current_category(), std::memory_order_relaxed);
    tracker().add(current_category(), static_cast<std::int64_t>(bytes));
    if (poison_.load(std::memory_order_relaxed)) {
      std::memset(header->data(), 0xFF, header->capacity);
    }
    return header->data();
  }

  Header* take_cached(const SizeClass& wanted) {
    const std::lock_guard lock(mutex_);
    Header* const header = free_[wanted.index];
    if (header != nullptr) {
      free_[wanted.index] = header->next;
      cached_bytes_ -= header->capacity;
    }
    return header;
  }

  Header* take_from_system(const SizeClass& wanted) {
    const std::size_t size = sizeof(Header) + wanted.capacity;
    void* memory = std::aligned_alloc(kUnit, size);
    if (memory == nullptr) {
      release_cached();
      memory = std::aligned_alloc(kUnit, size);
    }
    SHARDBENCH_CHECK(memory != nullptr, "out of memory: {} bytes wanted, {} in use", size,
                     total(tracker().live()));
    system_allocations_.fetch_add(1, std::memory_order_relaxed);
    auto* const header = new (memory) Header;
    header->capacity = wanted.capacity;
    header->size_class = wanted.index;
    return header;
  }

  mutable std::mutex mutex_;
  std::array<Header*, kClassCount> free_{};
  std::size_t cached_bytes_ = 0;
  std::atomic<std::int64_t> system_allocations_{0};
  std::atomic<bool> poison_{false};
};

CachingAllocator& allocator() {
  // Never destroyed: tensors may outlive every static object.
  static auto* const instance = new CachingAllocator;
  return *instance;
}

std::atomic<void (*)(const void*, Category)> device_book{nullptr};

void free_block(void* data) {
  if (data != nullptr) allocator().give_back(data);
}

}  // namespace

void install_allocator() { c10::SetCPUAllocator(&allocator()); }

c10::Allocator& tracking_allocator() { return allocator(); }

void retag_on_devices_by(void (*book)(const void*, Category)) { device_book = book; }

namespace {

/// The header of a tensor whose memory is from here, else null.
Header* header_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.is_cpu()) return nullptr;
  // Unchecked: a resharded parameter's storage refuses ordinary access. Memory that is not from
  // here has another deleter, and no header in front of it.
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const c10::DataPtr& pointer = storage._mutable_data_ptr_no_checks();
  if (pointer.get_deleter() != &free_block || pointer.get_context() == nullptr) return nullptr;
  return Header::of(pointer.get_context());
}

void retag_on_device(const at::Tensor& tensor, Category category) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const void* const data = storage._mutable_data_ptr_no_checks().get();
  auto* const book = device_book.load(std::memory_order_relaxed);
  if (book != nullptr && data != nullptr) book(data, category);
}

}  // namespace

void retag(const at::Tensor& tensor, Category category) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  if (!tensor.is_cpu()) return retag_on_device(tensor, category);
  Header* const header = header_of(tensor);
  if (header == nullptr) return;
  const Category before = header->category.exchange(category, std::memory_order_relaxed);
  if (before != category) tracker().retag(before, category, header->used_bytes());
}

void book_as_unused(const at::Tensor& tensor, std::int64_t bytes) {
  Header* const header = header_of(tensor);
  if (header == nullptr) return;
  SHARDBENCH_CHECK(bytes >= 0 && bytes <= header->used_bytes(), "{} of {} bytes unused", bytes,
                   header->used_bytes());
  tracker().retag(header->category.load(std::memory_order_relaxed), Category::kOther, bytes);
  header->unused += static_cast<std::size_t>(bytes);
}

void poison_freed(bool on) { allocator().poison(on); }
std::int64_t system_allocations() { return allocator().system_allocations(); }
std::int64_t cached_bytes() { return allocator().cached_bytes(); }
void release_cached() { allocator().release_cached(); }

}  // namespace shardbench::memory

#include "common/comm/plain_memory.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "common/memory/tracker.h"

namespace shardbench::comm {
namespace {

class PlainMemory : public SymmetricMemory::Owner {
 public:
  PlainMemory(std::size_t bytes, memory::Category category) : bytes_(bytes), category_(category) {
    memory::tracker().add(category_, static_cast<std::int64_t>(bytes_));
  }
  void release(void* data) override {
    std::free(data);
    memory::tracker().remove(category_, static_cast<std::int64_t>(bytes_));
  }

 private:
  std::size_t bytes_;
  memory::Category category_;
};

}  // namespace

SymmetricMemory plain_memory(std::size_t bytes, memory::Category category) {
  return plain_memory(bytes, bytes, category);
}

SymmetricMemory plain_memory(std::size_t bytes, std::size_t booked, memory::Category category) {
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  void* data = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
  if (data == nullptr) throw std::bad_alloc();
  return {std::make_shared<PlainMemory>(booked, category), data, bytes};
}

}  // namespace shardbench::comm

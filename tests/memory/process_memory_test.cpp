#include "common/memory/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace shardbench::memory {
namespace {

TEST(ProcessMemory, TouchedPagesAreResidentAndFaulted) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const ProcessMemory before = process_memory();
  ASSERT_GT(before.resident, 0);
  ASSERT_GE(before.peak_resident, before.resident);
  ASSERT_GT(before.proportional, 0);
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  const std::int64_t faults = minor_faults();
  std::memset(memory, 1, kBytes);
  EXPECT_GE(minor_faults() - faults, static_cast<std::int64_t>(kBytes) / sysconf(_SC_PAGESIZE));
  const ProcessMemory after = process_memory();
  constexpr std::int64_t kMost = static_cast<std::int64_t>(kBytes) * 9 / 10;
  EXPECT_GE(after.resident - before.resident, kMost);
  EXPECT_GE(after.proportional - before.proportional, kMost);
  munmap(memory, kBytes);
  const ProcessMemory freed = resident_memory();
  EXPECT_LE(freed.resident, after.resident - kMost);
  EXPECT_GE(freed.peak_resident, after.resident - (1 << 20));
  EXPECT_EQ(freed.proportional, -1);
}

}  // namespace
}  // namespace shardbench::memory

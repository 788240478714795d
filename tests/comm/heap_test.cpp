#include "common/comm/shm/heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/comm/plain_memory.h"
#include "common/core/error.h"
#include "common/memory/tracker.h"

namespace shardbench::comm {
namespace {

using memory::Category;
using memory::CategoryScope;

class Heap : public ::testing::Test {
 protected:
  std::shared_ptr<SharedSegment> segment_ = std::make_shared<SharedSegment>(2);
  std::shared_ptr<SymmetricHeap> heap_ = std::make_shared<SymmetricHeap>(segment_, 1);
};

TEST_F(Heap, BlocksAreAlignedAndApart) {
  std::vector<SymmetricMemory> blocks;
  for (std::size_t bytes : {0, 1, 63, 64, 65, 4096, 100000}) {
    blocks.push_back(heap_->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().data()) % 64, 0u);
    EXPECT_TRUE(heap_->contains(blocks.back().data(), bytes));
    std::memset(blocks.back().data(), static_cast<int>(blocks.size()), bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* data = static_cast<const unsigned char*>(blocks[i].data());
    for (std::size_t b = 0; b < blocks[i].bytes(); ++b) ASSERT_EQ(data[b], i + 1);
  }
  EXPECT_FALSE(heap_->contains(segment_->arena(0), 1));
}

TEST_F(Heap, FreedNeighboursJoin) {
  SymmetricMemory a = heap_->allocate(1000);
  SymmetricMemory b = heap_->allocate(1000);
  SymmetricMemory c = heap_->allocate(1000);
  SymmetricMemory d = heap_->allocate(1000);
  void* const start = a.data();
  for (SymmetricMemory* block : {&a, &c, &b}) SymmetricMemory freed(std::move(*block));
  SymmetricMemory joined = heap_->allocate(3000);
  EXPECT_EQ(joined.data(), start);
  joined = SymmetricMemory();
  d = SymmetricMemory();
  EXPECT_EQ(heap_->used_bytes(), 0u);
  // All of the arena is one block again.
  EXPECT_EQ(heap_->allocate(segment_->arena_bytes()).data(), segment_->arena(1));
}

TEST_F(Heap, FullArenaIsAClearError) {
  EXPECT_THROW(heap_->allocate(segment_->arena_bytes() + 1), UserError);
  EXPECT_THROW(heap_->allocate(~std::size_t{0}), UserError);
  const SymmetricMemory most = heap_->allocate(segment_->arena_bytes() - 64);
  EXPECT_NO_THROW(heap_->allocate(64));
  EXPECT_THROW(heap_->allocate(65), UserError);
}

TEST_F(Heap, BooksTheBytesAskedForUnderTheCategoryOfTheAllocation) {
  const auto live = [](Category category) {
    return memory::tracker().live()[static_cast<std::size_t>(category)];
  };
  const std::int64_t before = live(Category::kParam);
  SymmetricMemory block;
  {
    const CategoryScope scope(Category::kParam);
    block = heap_->allocate(1001);
  }
  EXPECT_EQ(live(Category::kParam), before + 1001);
  {
    const CategoryScope scope(Category::kGrad);  // another one when it is freed
    block = SymmetricMemory();
  }
  EXPECT_EQ(live(Category::kParam), before);
  EXPECT_EQ(live(Category::kGrad), 0);
}

TEST_F(Heap, OutlivesItsOwner) {
  SymmetricMemory block = heap_->allocate(128);
  heap_.reset();
  segment_.reset();
  std::memset(block.data(), 1, 128);  // still mapped
}

/// A block that comes again costs no new pages.
TEST(PlainMemory, IsUsedAgain) {
  const CategoryScope scope(Category::kCommBuffer);
  const auto live = [] {
    return memory::tracker().live()[static_cast<std::size_t>(Category::kCommBuffer)];
  };
  const std::int64_t before = live();
  const void* const first = plain_memory(1 << 20).data();
  const SymmetricMemory again = plain_memory(1 << 20);
  EXPECT_EQ(again.data(), first);
  const SymmetricMemory booked = plain_memory(4096, 100, Category::kCommBuffer);
  EXPECT_NE(booked.data(), first);
  EXPECT_EQ(live() - before, (1 << 20) + 100);
}

}  // namespace
}  // namespace shardbench::comm

// What is booked and timed on a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "common/comm/nccl/device_memory.h"
#include "common/comm/nccl/device_timer.h"
#include "common/core/error.h"
#include "tests/comm/nccl/double.h"

namespace shardbench::comm {
namespace {

using memory::Category;

std::int64_t live(const memory::Tracker& tracker, Category category) {
  return tracker.live()[static_cast<std::size_t>(category)];
}

TEST(DeviceMemoryBook, BooksUnderTheCategoryOfTheThread) {
  memory::Tracker tracker;
  DeviceMemoryBook book(tracker);
  std::array<std::byte, 100> memory{};
  {
    const memory::CategoryScope scope(Category::kGatheredParam);
    book.allocated(memory.data(), 60);
  }
  book.allocated(memory.data() + 60, 39);
  EXPECT_EQ(live(tracker, Category::kGatheredParam), 60);
  EXPECT_EQ(live(tracker, Category::kOther), 39);
  EXPECT_EQ(tracker.peak(), 99);
  book.retag(memory.data() + 59, Category::kActivation);  // anywhere in the block
  book.retag(memory.data() + 99, Category::kGrad);        // past all blocks

  EXPECT_EQ(live(tracker, Category::kActivation), 60);
  EXPECT_EQ(live(tracker, Category::kGatheredParam), 0);
  EXPECT_EQ(live(tracker, Category::kOther), 39);
  book.freed(memory.data());
  book.freed(memory.data());  // nobody's
  book.freed(memory.data() + 60);
  EXPECT_EQ(memory::total(tracker.live()), 0);
}

TEST(DeviceMemoryBook, RemembersWhatThereWasNoRoomFor) {
  memory::Tracker tracker;
  DeviceMemoryBook book(tracker);
  EXPECT_FALSE(book.refusal());
  const memory::CategoryScope scope(Category::kUnshardedGrad);
  std::array<std::byte, 8> memory{};
  book.allocated(memory.data(), 8);
  book.refused(1000, 500, 20);
  ASSERT_TRUE(book.refusal());
  EXPECT_EQ(book.refusal()->category, Category::kUnshardedGrad);
  EXPECT_EQ(book.refusal()->bytes, 1000);
  EXPECT_EQ(book.refusal()->total, 500);
  EXPECT_EQ(book.refusal()->free, 20);
  EXPECT_EQ(memory::total(book.refusal()->live), 8);
}

TEST(DeviceTimer, GivesTheTimeBetweenItsMarks) {
  NcclDouble gpus(1);
  GpuStream stream = nullptr;
  gpus.stream_create(stream);
  {
    DeviceTimer timer(gpus);
    for (int round = 0; round < 2; ++round) {
      timer.start(stream);
      gpus.advance_clock(stream, 7 + round);
      timer.stop(stream);
      gpus.advance_clock(stream, 100);
      ASSERT_TRUE(timer.ready());
      EXPECT_EQ(timer.ms(), 7 + round);
    }
    timer.start(stream);
    timer.stop(stream);
    std::thread([&] {  // another thread's query runs nothing
      EXPECT_FALSE(timer.ready());
      EXPECT_THROW(timer.ms(), InvariantError);
    })
        .join();
  }
  EXPECT_THAT(gpus.misuse(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace shardbench::comm

#include "common/memory/allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "common/core/error.h"
#include "common/memory/tracker.h"

namespace shardbench::memory {
namespace {

std::int64_t live(Category category) {
  return tracker().live()[static_cast<std::size_t>(category)];
}

class AllocatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_allocator(); }
  void TearDown() override { poison_freed(false); }
};

TEST_F(AllocatorTest, BooksBytesAskedForUnderTheScope) {
  const std::int64_t before = live(Category::kGrad);
  {
    const CategoryScope scope(Category::kGrad);
    const at::Tensor tensor = at::empty({1001});  // rounded up inside, not in the books
    EXPECT_EQ(live(Category::kGrad) - before, 4004);
    const at::Tensor view = tensor.narrow(0, 3, 10);
    EXPECT_EQ(live(Category::kGrad) - before, 4004);
  }
  EXPECT_EQ(live(Category::kGrad), before);
}

TEST_F(AllocatorTest, FreedUnderTheCategoryItWasBookedUnder) {
  const std::int64_t before = live(Category::kOptimizer);
  at::Tensor tensor;
  {
    const CategoryScope scope(Category::kOptimizer);
    tensor = at::zeros({64});
  }
  EXPECT_EQ(live(Category::kOptimizer) - before, 256);
  const CategoryScope scope(Category::kTemp);
  tensor.reset();
  EXPECT_EQ(live(Category::kOptimizer), before);
}

TEST_F(AllocatorTest, UnusedBytesAreOther) {
  const std::int64_t optimizer = live(Category::kOptimizer);
  const std::int64_t other = live(Category::kOther);
  {
    const CategoryScope scope(Category::kOptimizer);
    const at::Tensor tensor = at::zeros({1000});
    book_as_unused(tensor, 96);
    EXPECT_EQ(live(Category::kOptimizer) - optimizer, 3904);
    EXPECT_EQ(live(Category::kOther) - other, 96);
    retag(tensor, Category::kParam);
    EXPECT_EQ(live(Category::kOptimizer), optimizer);
    EXPECT_EQ(live(Category::kOther) - other, 96);
    EXPECT_THROW(book_as_unused(tensor, 3905), InvariantError);
  }
  EXPECT_EQ(live(Category::kOptimizer), optimizer);
  EXPECT_EQ(live(Category::kOther), other);
  const CategoryScope scope(Category::kOptimizer);
  const at::Tensor next = at::zeros({1000});  // the same block again, all of it in use
  EXPECT_EQ(live(Category::kOptimizer) - optimizer, 4000);
}

TEST_F(AllocatorTest, AlignedAndWholeForEverySize) {
  std::vector<at::Tensor> tensors;
  for (std::int64_t bytes = 1; bytes < 3'000'000; bytes += 1 + bytes / 3) {
    for (const std::int64_t n : {bytes, (bytes + 63) / 64 * 64, (bytes + 63) / 64 * 64 + 1}) {
      at::Tensor tensor = at::empty({n}, at::kByte);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u) << n;
      tensor.fill_(static_cast<int>(tensors.size() % 251));
      tensors.push_back(tensor);
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {  // no block reaches into another
    const auto* data = tensors[i].const_data_ptr<std::uint8_t>();
    for (const std::int64_t place : {std::int64_t{0}, tensors[i].numel() - 1}) {
      ASSERT_EQ(data[place], i % 251);
    }
  }
}

TEST_F(AllocatorTest, SteadyStateAsksTheSystemForNothing) {
  const auto step = [] {
    std::vector<at::Tensor> kept;
    for (const std::int64_t n : {3, 500, 70'000, 500, 1'000'000, 3}) kept.push_back(at::ones({n}));
    return at::cat(kept).mul(2).sum().item<float>();
  };
  step();
  const std::int64_t before = system_allocations();
  const float first = step();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(step(), first);
  EXPECT_EQ(system_allocations(), before);
}

TEST_F(AllocatorTest, ReleaseCachedGivesAllBack) {
  at::empty({12'345'678}).reset();
  EXPECT_GE(cached_bytes(), 12'345'678 * 4);
  EXPECT_EQ(cached_bytes() % 64, 0);
  const at::Tensor kept = at::ones({777});
  release_cached();
  EXPECT_EQ(cached_bytes(), 0);
  EXPECT_EQ(kept.sum().item<float>(), 777);
  const std::int64_t before = system_allocations();
  const at::Tensor again = at::empty({12'345'678});
  EXPECT_EQ(system_allocations(), before + 1);
}

TEST_F(AllocatorTest, WastesAtMostAnEighth) {
  for (const std::int64_t bytes : {100'000, 1'000'003, 9'999'999}) {
    release_cached();
    tracking_allocator().allocate(static_cast<std::size_t>(bytes)).clear();
    EXPECT_GE(cached_bytes(), bytes);
    EXPECT_LE(cached_bytes(), bytes + bytes / 8 + 64);
  }
}

TEST_F(AllocatorTest, RetagMovesTheWholeStorage) {
  const std::int64_t temp = live(Category::kTemp);
  const std::int64_t activation = live(Category::kActivation);
  {
    const CategoryScope scope(Category::kTemp);
    at::Tensor tensor = at::empty({100});
    retag(tensor.narrow(0, 10, 5), Category::kActivation);
    EXPECT_EQ(live(Category::kTemp), temp);
    EXPECT_EQ(live(Category::kActivation), activation + 400);
    retag(tensor, Category::kActivation);  // twice counts once
    EXPECT_EQ(live(Category::kActivation), activation + 400);
  }
  EXPECT_EQ(live(Category::kActivation), activation);
  EXPECT_EQ(live(Category::kTemp), temp);
}

TEST_F(AllocatorTest, RetagLeavesForeignMemoryAlone) {
  const CategoryBytes before = tracker().live();
  alignas(64) float foreign[32] = {};
  const at::Tensor bound = at::from_blob(foreign, {32});
  retag(bound, Category::kParam);
  retag(bound.narrow(0, 16, 4), Category::kParam);
  retag(at::Tensor(), Category::kParam);
  retag(at::empty({0}), Category::kParam);
  EXPECT_EQ(tracker().live(), before);
}

TEST_F(AllocatorTest, RetagOfAStorageThatRefusesAccess) {
  at::Tensor tensor = at::empty({16});
  tensor.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "resharded");
  const std::int64_t before = live(Category::kParam);
  retag(tensor, Category::kParam);
  EXPECT_EQ(live(Category::kParam), before + 64);
}

TEST_F(AllocatorTest, MemoryOfADefaultAllocatorTensorIsForeign) {
  c10::DataPtr data = c10::GetDefaultCPUAllocator()->allocate(64);
  const at::Tensor tensor = at::from_blob(data.get(), {16});
  const CategoryBytes before = tracker().live();
  retag(tensor, Category::kGrad);
  EXPECT_EQ(tracker().live(), before);
}

TEST_F(AllocatorTest, PoisonMakesUnwrittenMemoryNan) {
  poison_freed(true);
  const at::Tensor fresh = at::empty({300});
  EXPECT_TRUE(at::isnan(fresh).all().item<bool>());
  EXPECT_TRUE(at::isnan(at::empty({300}, at::kBFloat16)).all().item<bool>());
  EXPECT_TRUE(at::isnan(at::empty({300}, at::kDouble)).all().item<bool>());
  EXPECT_EQ(at::empty({300}, at::kLong).max().item<std::int64_t>(), -1);
  at::Tensor written = at::ones({300});
  const float* const data = written.const_data_ptr<float>();
  written.reset();
  EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[299]));  // kept in the cache, so readable
  EXPECT_EQ(at::zeros({300}).sum().item<float>(), 0);
}

TEST_F(AllocatorTest, RawAllocationsWork) {  // as oneDNN does
  const std::int64_t before = live(Category::kCommBuffer);
  const CategoryScope scope(Category::kCommBuffer);
  void* const data = tracking_allocator().raw_allocate(1000);
  std::memset(data, 1, 1000);
  EXPECT_EQ(live(Category::kCommBuffer), before + 1000);
  tracking_allocator().raw_deallocate(data);
  EXPECT_EQ(live(Category::kCommBuffer), before);
}

TEST_F(AllocatorTest, IsTheAllocatorOfAten) {
  install_allocator();  // again: nothing changes
  EXPECT_EQ(c10::GetAllocator(c10::DeviceType::CPU), &tracking_allocator());
  const at::Tensor product =
      at::matmul(at::ones({8, 8}, at::kBFloat16), at::ones({8, 8}, at::kBFloat16));
  EXPECT_EQ(product.sum().item<float>(), 512);
}

TEST_F(AllocatorTest, ImpossibleSizesAreNamedErrors) {
  EXPECT_THROW(tracking_allocator().allocate(std::size_t{1} << 62), InvariantError);
}

TEST_F(AllocatorTest, ExactWithManyThreads) {
  const CategoryBytes before = tracker().live();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const CategoryScope scope(static_cast<Category>(t));
      std::vector<at::Tensor> kept(16);
      for (int i = 0; i < 4000; ++i) {
        at::Tensor& tensor = kept[static_cast<std::size_t>(i) % kept.size()];
        tensor = at::empty({1 + (i * 37 + t) % 5000});
        *tensor.mutable_data_ptr<float>() = 1;
        retag(tensor, static_cast<Category>((t + i) % kCategoryCount));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tracker().live(), before);
}

}  // namespace
}  // namespace shardbench::memory

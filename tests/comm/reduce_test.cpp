#include "common/comm/reduce.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "common/core/error.h"
#include "tests/comm/elements.h"
#include "tests/support/simd.h"

namespace shardbench::comm {
namespace {

/// fp32 values whose sum depends on the order of addition.
std::vector<std::vector<float>> awkward_sources(int count, std::int64_t elements) {
  std::vector<std::vector<float>> sources(static_cast<std::size_t>(count));
  std::uint32_t state = 12345;
  for (auto& source : sources) {
    for (std::int64_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      const auto value = static_cast<float>(static_cast<std::int32_t>(state)) * 1e-9f;
      source.push_back(i % 3 == 0 ? value * 1e6f : value);
    }
  }
  return sources;
}

TEST(Reduce, AddsInOrderOfRanksWithOneMultiplication) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::int64_t count : {1, 15, 1023, 1024, 2500}) {
      const auto sources = awkward_sources(ranks, count);
      std::vector<const void*> pointers;
      for (const auto& source : sources) pointers.push_back(source.data());
      std::vector<float> result(static_cast<std::size_t>(count), 0.25f);
      std::vector<float> more = result;
      void* const target = result.data();
      void* const accumulated = more.data();
      reduce_elements(DType::kFloat32, ReduceOp::kAverage, pointers, {&target, 1}, count, false);
      reduce_elements(DType::kFloat32, ReduceOp::kAverage, pointers, {&accumulated, 1}, count,
                      true);
      for (std::size_t i = 0; i < result.size(); ++i) {
        volatile float sum = sources[0][i];  // volatile: no reordering, no wider registers
        for (int r = 1; r < ranks; ++r) sum = sum + sources[static_cast<std::size_t>(r)][i];
        volatile float mean = sum * (1.0f / static_cast<float>(ranks));
        ASSERT_EQ(result[i], mean) << i << " of " << count << ", " << ranks << " ranks";
        volatile float total = 0.25f + mean;
        ASSERT_EQ(more[i], total);
      }
    }
  }
}

TEST(Reduce, WritesAllDestinationsInPlace) {
  std::vector<float> a(3000, 1);
  std::vector<float> b(3000, 2);
  std::vector<float> c(3000, 4);
  const void* const sources[] = {a.data(), b.data(), c.data()};
  void* const destinations[] = {a.data(), b.data(), c.data()};
  reduce_elements(DType::kFloat32, ReduceOp::kSum, sources, destinations, 3000, false);
  for (std::size_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(a[i], 7);
    ASSERT_EQ(b[i], 7);
    ASSERT_EQ(c[i], 7);
  }
}

TEST(Reduce, EveryWidthGivesTheSameBits) {
  const auto sources = awkward_sources(5, 1039);
  std::vector<const void*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      std::vector<std::vector<float>> results;
      for (const SimdWidth width : simd_widths()) {
        const testing::WithSimdWidth in_use(width);
        std::vector<float>& result = results.emplace_back(1039, 0.5F);
        void* const target = result.data();
        reduce_elements(dtype, op, pointers, {&target, 1}, 1039, /*accumulate=*/true);
        EXPECT_EQ(std::memcmp(result.data(), results.front().data(), 1039 * sizeof(float)), 0)
            << name_of(width);
      }
    }
  }
}

// A sum made in several steps: whole at the end, the average of all ranks and not of the last step.
TEST(Reduce, GoesOnFromAPartialSum) {
  const std::vector<float> a = {0.1F, 1e8F}, b = {0.7F, 3.0F}, c = {-0.3F, -1e8F};
  std::vector<float> whole(2), partial(2), steps(2);
  const void* const all[] = {a.data(), b.data(), c.data()};
  void* const at_once = whole.data();
  reduce_elements(DType::kFloat32, ReduceOp::kAverage, all, {&at_once, 1}, 2, false);
  const void* const first[] = {a.data(), b.data()};
  void* const so_far = partial.data();
  reduce_elements(DType::kFloat32, ReduceOp::kSum, first, {&so_far, 1}, 2, false);
  const void* const rest[] = {partial.data(), c.data()};
  void* const end = steps.data();
  reduce_elements(DType::kFloat32, ReduceOp::kAverage, rest, {&end, 1}, 2, false, 3);
  EXPECT_EQ(steps, whole);
}

// Adding 1 to 256 in bf16 a hundred times would stay at 256; in fp32, rounded once, it does not.
TEST(Reduce, SixteenBitsAddUpInFloat) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const double start = dtype == DType::kBFloat16 ? 256 : 2048;
    std::vector<std::vector<std::uint16_t>> values(101, std::vector<std::uint16_t>(1));
    std::vector<const void*> sources;
    for (std::size_t r = 0; r < values.size(); ++r) {
      store_element(dtype, r == 0 ? start : 1, values[r].data());
      sources.push_back(values[r].data());
    }
    std::byte result[8] = {};
    void* const target = result;
    reduce_elements(dtype, ReduceOp::kSum, sources, {&target, 1}, 1, false);
    EXPECT_EQ(load_element(dtype, result), rounded(dtype, start + 100));
  }
}

TEST(Reduce, MaximumPropagatesNaNInEveryPlace) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::byte storage[3][8];
    const void* const sources[] = {storage[0], storage[1], storage[2]};
    std::byte result[8];
    void* const target = result;
    const auto maximum = [&](double a, double b, double c) {
      store_element(dtype, a, storage[0]);
      store_element(dtype, b, storage[1]);
      store_element(dtype, c, storage[2]);
      reduce_elements(dtype, ReduceOp::kMax, sources, {&target, 1}, 1, false);
      return load_element(dtype, result);
    };
    EXPECT_EQ(maximum(-1, -3, -2), -1);
    EXPECT_EQ(maximum(-4, 3, 2), 3);
    EXPECT_TRUE(std::isnan(maximum(nan, 1, 2))) << name_of(dtype);
    EXPECT_TRUE(std::isnan(maximum(1, nan, 2))) << name_of(dtype);
    EXPECT_TRUE(std::isnan(maximum(1, 2, nan))) << name_of(dtype);
  }
}

TEST(Reduce, RefusesByName) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
    for (const DType dtype : all_dtypes()) {
      if (is_defined(dtype, op)) {
        EXPECT_NO_THROW(check_reducible(dtype, op));
      } else {
        EXPECT_THROW(check_reducible(dtype, op), UserError) << name_of(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace shardbench::comm

#include <gtest/gtest.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/sharding/flat.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

constexpr double kMib = 1024.0 * 1024.0;

/// Every trainable parameter once, in reverse order, on 64 bytes, without overlap.
void expect_sound(const ModelShape& model, const std::vector<Bucket>& buckets) {
  std::vector<int> wanted;
  for (int p = static_cast<int>(model.parameters.size()); p-- > 0;) {
    if (model.parameters[static_cast<std::size_t>(p)].requires_grad) wanted.push_back(p);
  }
  std::vector<int> found;
  std::int64_t begin = 0;
  for (const Bucket& bucket : buckets) {
    EXPECT_EQ(bucket.begin, begin);
    EXPECT_EQ(bucket.begin % kPieceElements, 0);
    ASSERT_EQ(bucket.parameters.size(), bucket.offsets.size());
    ASSERT_FALSE(bucket.parameters.empty());
    std::int64_t end = 0;
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      EXPECT_EQ(bucket.offsets[i] % kPieceElements, 0);
      EXPECT_GE(bucket.offsets[i], end);
      EXPECT_LT(bucket.offsets[i] - end, kPieceElements);
      end = bucket.offsets[i] +
            model.parameters[static_cast<std::size_t>(bucket.parameters[i])].numel();
      found.push_back(bucket.parameters[i]);
    }
    EXPECT_GE(bucket.extent, end);
    EXPECT_LT(bucket.extent - end, kPieceElements);
    begin += bucket.extent;
  }
  EXPECT_EQ(found, wanted);
}

TEST(PlanBuckets, SoundForAllModelsAndCaps) {
  for (const ModelShape& model : odd_models()) {
    for (const double cap : {64 / kMib, 200 / kMib, 4096 / kMib, 25.0}) {
      for (const double first : {64 / kMib, 1.0}) {
        SCOPED_TRACE(model.name);
        expect_sound(model, plan_buckets(model, cap, first));
      }
    }
  }
}

TEST(PlanBuckets, FirstCapThenCapAndNoTensorSplit) {
  ShapeBuilder build;
  // Extents in elements: 16, 32, 16, 16, 64, 16 (canonical order).
  for (const std::int64_t n : {16, 20, 16, 9, 64, 3}) {
    build.parameter(0, "p" + std::to_string(n), {n});
  }
  // First cap 20 elements: {p3}; then cap 48 elements: p64 alone (too big), {p9, p16}, {p20, p16}.
  const auto buckets = plan_buckets(build.model(), 48 * 4 / kMib, 20 * 4 / kMib);
  expect_sound(build.model(), buckets);
  std::vector<std::vector<int>> parameters;
  for (const Bucket& bucket : buckets) parameters.push_back(bucket.parameters);
  EXPECT_EQ(parameters, (std::vector<std::vector<int>>{{5}, {4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(buckets[2].offsets, (std::vector<std::int64_t>{0, 16}));
  EXPECT_EQ(buckets[3].begin, 16 + 64 + 32);
  EXPECT_EQ(buckets[3].extent, 48);
}

TEST(PlanBuckets, ExactlyAtTheCapStillFits) {
  ShapeBuilder build;
  for (int i = 0; i < 4; ++i) build.parameter(0, "p" + std::to_string(i), {16});
  EXPECT_EQ(plan_buckets(build.model(), 32 * 4 / kMib, 32 * 4 / kMib).size(), 2u);
  EXPECT_EQ(plan_buckets(build.model(), 31 * 4 / kMib, 31 * 4 / kMib).size(), 4u);
}

TEST(PlanBuckets, NothingTrainable) {
  ShapeBuilder build;
  build.parameter(0, "frozen", {5}, false);
  EXPECT_TRUE(plan_buckets(build.model(), 25, 1).empty());
}

TEST(PlanBuckets, RefusesCapsThatAreNotPositive) {
  EXPECT_THROW(plan_buckets(odd_models()[0], 0, 1), InvariantError);
  EXPECT_THROW(plan_buckets(odd_models()[0], 25, -1), InvariantError);
}

}  // namespace
}  // namespace shardbench::sharding

#include "common/train/prefetch_order.h"

#include <gtest/gtest.h>

namespace shardbench::train {
namespace {

using Units = std::vector<int>;

TEST(PrefetchOrder, FirstPassPredictsNothing) {
  PrefetchOrder order;
  for (int unit : {0, 1, 2}) EXPECT_EQ(order.enter(unit, 2), Units{});
}

TEST(PrefetchOrder, LaterPassesPredictByTheOneBefore) {
  PrefetchOrder order;
  for (int unit : {0, 3, 1}) order.enter(unit, 1);
  order.restart();
  EXPECT_EQ(order.enter(0, 1), Units{3});
  EXPECT_EQ(order.enter(3, 2), Units{1});
  EXPECT_EQ(order.enter(1, 2), Units{});
}

TEST(PrefetchOrder, DepthZeroPredictsNothing) {
  PrefetchOrder order;
  for (int unit : {0, 1}) order.enter(unit, 0);
  order.restart();
  EXPECT_EQ(order.enter(0, 0), Units{});
}

TEST(PrefetchOrder, ChangedOrderIsLearned) {
  PrefetchOrder order;
  for (int unit : {0, 1, 2, 3}) order.enter(unit, 1);
  order.restart();
  EXPECT_EQ(order.enter(3, 1), Units{});  // the last one known: nothing after it
  EXPECT_EQ(order.enter(1, 1), Units{});  // behind the cursor: not predicted
  order.enter(2, 1);
  order.restart();
  EXPECT_EQ(order.enter(3, 1), Units{1});
}

TEST(PrefetchOrder, AUnitMayComeTwice) {
  PrefetchOrder order;
  for (int unit : {0, 1, 1, 2}) order.enter(unit, 1);
  order.restart();
  order.enter(0, 1);
  EXPECT_EQ(order.enter(1, 1), Units{1});
  EXPECT_EQ(order.enter(1, 1), Units{2});
}

TEST(PrefetchOrder, AForwardWithoutBackwardStartsOver) {  // an evaluation: nobody calls restart
  PrefetchOrder order;
  for (int unit : {0, 1, 2}) order.enter(unit, 1);
  order.restart();
  for (int unit : {0, 1, 2}) order.enter(unit, 1);
  EXPECT_EQ(order.enter(0, 1), Units{1});
}

}  // namespace
}  // namespace shardbench::train

#include "common/comm/mpi/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Placement, GridOfConsecutiveRanks) {
  const auto grid = make_grid({0, 0, 0, 1, 1, 1}, 4);
  ASSERT_TRUE(grid.has_value());
  EXPECT_EQ(grid->hosts, 2);
  EXPECT_EQ(grid->per_host, 3);
  EXPECT_EQ(grid->host, 1);
  EXPECT_EQ(grid->local, 1);
  EXPECT_TRUE(grid->in_order);
  EXPECT_EQ(grid->rank_at(0, 2), 2);
  EXPECT_EQ(grid->rank_at(1, 0), 3);
}

TEST(Placement, GridOfRanksDealtOut) {
  const auto grid = make_grid({0, 1, 0, 1}, 3);
  ASSERT_TRUE(grid.has_value());
  EXPECT_EQ(grid->host, 1);
  EXPECT_EQ(grid->local, 1);
  EXPECT_FALSE(grid->in_order);
  EXPECT_THAT(grid->by_place, ElementsAre(0, 2, 1, 3));
}

TEST(Placement, OneHostAndOneRankEach) {
  EXPECT_EQ(make_grid({0, 0}, 1)->hosts, 1);
  EXPECT_EQ(make_grid({0, 1, 2}, 2)->per_host, 1);
  EXPECT_EQ(make_grid({0}, 0)->per_host, 1);
}

TEST(Placement, UnequalHostsHaveNoGrid) {
  EXPECT_FALSE(make_grid({0, 0, 1}, 0).has_value());
  EXPECT_FALSE(make_grid({0, 1, 1, 2}, 3).has_value());
}

TEST(Placement, WarnsOfWhatIsLost) {
  EXPECT_EQ(placement_warning({0, 0, 1, 1}), "");
  EXPECT_EQ(placement_warning({0, 1, 2}), "");
  EXPECT_EQ(placement_warning({0, 0, 0}), "");
  EXPECT_THAT(placement_warning({0, 0, 1}), HasSubstr("hosts have 2, 1 ranks"));
  EXPECT_THAT(placement_warning({0, 1, 0, 1}), HasSubstr("on different hosts: all_reduce"));
}

TEST(Placement, Routes) {
  EXPECT_EQ(parse_route("auto"), MpiRoute::kAuto);
  EXPECT_EQ(parse_route("flat"), MpiRoute::kFlat);
  EXPECT_EQ(parse_route("hierarchical"), MpiRoute::kHierarchical);
  try {
    parse_route("flatt");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "SHARDBENCH_MPI_ROUTE 'flatt': choose from auto, flat, hierarchical (did you mean "
                 "'flat'?)");
  }
}

}  // namespace
}  // namespace shardbench::comm

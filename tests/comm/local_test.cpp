// One rank: the local backend, and shm beside it.
#include <gtest/gtest.h>

#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"
#include "tests/comm/elements.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

std::unique_ptr<Communicator> make(const std::string& backend) {
  if (backend == "local") return make_local();
  return make_shm(Job::create(Job::Options{}), 0);
}

class OneRank : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, OneRank, ::testing::Values("local", "shm"),
                         [](const auto& backend) { return backend.param; });

TEST_P(OneRank, EveryCollective) {
  const auto comm = make(GetParam());
  EXPECT_EQ(comm->backend(), GetParam());
  EXPECT_EQ(comm->world_size(), 1);
  const ShardLayout layout({{Segment{2, 0, 3}, Segment{0, 5, 1}}});
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
    TestBuffer shard(*comm, true, dtype, 5);
    TestBuffer full(*comm, false, dtype, 6);
    for (int i = 0; i < 5; ++i) shard.set(i, i + 1);
    comm->all_gather(layout, shard.buffer(), full.buffer(), {"g"}).wait();
    EXPECT_EQ(full.get(0), 3);
    EXPECT_EQ(full.get(2), 5);
    EXPECT_EQ(full.get(5), 1);
    EXPECT_TRUE(full.untouched(3));
    comm->reduce_scatter(layout, full.buffer(), shard.buffer(), ReduceOp::kSum, true, {"s"}).wait();
    EXPECT_EQ(shard.get(2), 6);
    EXPECT_EQ(shard.get(0), 2);
    EXPECT_EQ(shard.get(1), 2);  // a gap
    comm->broadcast(layout, 0, shard.buffer(), full.buffer(), {"b"}).wait_released();
    EXPECT_EQ(full.get(0), 6);
    comm->reduce(layout, 0, full.buffer(), shard.buffer(), ReduceOp::kMax, false, {"r"}).wait();
    EXPECT_EQ(shard.get(4), 10);
    const ReduceOp op = dtype == DType::kInt64 ? ReduceOp::kSum : ReduceOp::kAverage;
    Work work = comm->all_reduce(shard.buffer(), op, {"a"});
    work.wait();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(shard.get(4), 10);
  }
  comm->barrier({"end"}).wait();
  comm->quiesce();
  EXPECT_TRUE(Work().done());
  EXPECT_NO_THROW(Work().wait());
}

TEST_P(OneRank, AbortEndsIt) {
  const auto comm = make(GetParam());
  comm->abort("enough");
  EXPECT_THROW(comm->barrier({"x"}).wait(), JobAborted);
}

TEST_P(OneRank, ChecksBuffersAgainstTheLayout) {
  const auto comm = make(GetParam());
  TestBuffer small(*comm, true, DType::kFloat32, 3);
  TestBuffer large(*comm, true, DType::kFloat32, 8);
  TestBuffer other(*comm, true, DType::kFloat64, 8);
  const ShardLayout layout = ShardLayout::even(8, 1);
  const CallTag tag{"x"};
  EXPECT_THROW(comm->all_gather(layout, small.buffer(), large.buffer(), tag), InvariantError);
  EXPECT_THROW(comm->all_gather(layout, large.buffer(), small.buffer(), tag), InvariantError);
  EXPECT_THROW(comm->all_gather(layout, other.buffer(), large.buffer(), tag), InvariantError);
  EXPECT_THROW(comm->all_gather(ShardLayout::even(8, 2), large.buffer(), large.buffer(), tag),
               InvariantError);
  EXPECT_THROW(comm->broadcast(layout, 1, large.buffer(), large.buffer(), tag), InvariantError);
}

}  // namespace
}  // namespace shardbench::comm

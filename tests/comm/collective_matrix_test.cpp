// Every collective x dtype x operation x layout x world size, exact, in symmetric and other memory.
#include <gtest/gtest.h>

#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;
using testing::Rank;
using testing::RankMode;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax};

/// All calls of one rank; every call has a label of its own.
class Matrix {
 public:
  Matrix(Rank& rank, bool symmetric) : rank_(rank), comm_(rank.comm), symmetric_(symmetric) {}

  void run() {
    for (const ShardLayout& layout : test_layouts(rank_.world_size)) {
      for (const DType dtype : all_dtypes()) {
        gather(layout, dtype, -1);
        for (int root = 0; root < rank_.world_size; root += 2) gather(layout, dtype, root);
        for (const ReduceOp op : kOps) {
          if (!is_defined(dtype, op)) continue;
          for (const bool accumulate : {false, true}) {
            reduce(layout, dtype, op, accumulate, -1);
            for (int root = 1; root < rank_.world_size; root += 2) {
              reduce(layout, dtype, op, accumulate, root);
            }
          }
          all_reduce(layout.total(), dtype, op);
        }
      }
    }
    comm_.quiesce();
  }

 private:
  /// all_gather (root -1) or broadcast of the root's part.
  void gather(const ShardLayout& layout, DType dtype, int root) {
    TestBuffer shard(comm_, symmetric_, dtype, layout.shard_extent(rank_.rank));
    TestBuffer full(comm_, symmetric_, dtype, layout.full_extent());
    for (const Segment& s : layout.segments(rank_.rank)) {
      for (std::int64_t i = 0; i < s.count; ++i) {
        shard.set(s.shard_offset + i, test_value(rank_.rank, s.full_offset + i));
      }
    }
    Work work = root < 0 ? comm_.all_gather(layout, shard.buffer(), full.buffer(), tag())
                         : comm_.broadcast(layout, root, shard.buffer(), full.buffer(), tag());
    work.wait();
    EXPECT_TRUE(work.done());
    std::vector<double> expected(static_cast<std::size_t>(layout.full_extent()), -1);
    for (int peer = 0; peer < rank_.world_size; ++peer) {
      if (root >= 0 && peer != root) continue;
      for (const Segment& s : layout.segments(peer)) {
        for (std::int64_t i = 0; i < s.count; ++i) {
          expected[static_cast<std::size_t>(s.full_offset + i)] =
              test_value(peer, s.full_offset + i);
        }
      }
    }
    for (std::int64_t i = 0; i < layout.full_extent(); ++i) {
      const double want = expected[static_cast<std::size_t>(i)];
      if (want < 0) {
        ASSERT_TRUE(full.untouched(i)) << "gap at " << i << ", " << name_of(dtype);
      } else {
        ASSERT_EQ(full.get(i), want) << "element " << i << ", " << name_of(dtype);
      }
    }
    work.wait_released();
  }

  /// reduce_scatter (root -1) or reduce to the root.
  void reduce(const ShardLayout& layout, DType dtype, ReduceOp op, bool accumulate, int root) {
    TestBuffer full(comm_, symmetric_, dtype, layout.full_extent());
    TestBuffer shard(comm_, symmetric_, dtype, layout.shard_extent(rank_.rank));
    for (std::int64_t i = 0; i < layout.full_extent(); ++i) {
      full.set(i, test_value(rank_.rank, i));
    }
    const std::vector<Segment>& own = layout.segments(rank_.rank);
    for (const Segment& s : own) {
      for (std::int64_t i = 0; accumulate && i < s.count; ++i) shard.set(s.shard_offset + i, 3);
    }
    Work work =
        root < 0
            ? comm_.reduce_scatter(layout, full.buffer(), shard.buffer(), op, accumulate, tag())
            : comm_.reduce(layout, root, full.buffer(), shard.buffer(), op, accumulate, tag());
    work.wait();
    std::vector<bool> written(static_cast<std::size_t>(layout.shard_extent(rank_.rank)));
    for (const Segment& s : own) {
      if (root >= 0 && root != rank_.rank) break;
      for (std::int64_t i = 0; i < s.count; ++i) {
        double want = reduced(dtype, op, s.full_offset + i);
        if (accumulate) {
          want = dtype == DType::kFloat64 ? 3 + want
                                          : static_cast<float>(3 + static_cast<float>(want));
        }
        written[static_cast<std::size_t>(s.shard_offset + i)] = true;
        ASSERT_EQ(shard.get(s.shard_offset + i), rounded(dtype, want))
            << "element " << i << ", " << name_of(dtype) << ", op " << static_cast<int>(op);
      }
    }
    for (std::size_t i = 0; i < written.size() && !accumulate; ++i) {
      if (written[i]) continue;
      ASSERT_TRUE(shard.untouched(static_cast<std::int64_t>(i)));
    }
    work.wait_released();
  }

  void all_reduce(std::int64_t count, DType dtype, ReduceOp op) {
    TestBuffer data(comm_, symmetric_, dtype, count);
    for (std::int64_t i = 0; i < count; ++i) data.set(i, test_value(rank_.rank, i));
    Work work = comm_.all_reduce(data.buffer(), op, tag());
    work.wait();
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(data.get(i), rounded(dtype, reduced(dtype, op, i)))
          << "element " << i << " of " << count << ", " << name_of(dtype);
    }
    work.wait_released();
  }

  double reduced(DType dtype, ReduceOp op, std::int64_t i) const {
    std::vector<double> values;
    for (int peer = 0; peer < rank_.world_size; ++peer) values.push_back(test_value(peer, i));
    return reference_reduce(dtype, op, values);
  }

  CallTag tag() {
    label_ = "call " + std::to_string(++calls_);
    return {label_, Phase::kForward};
  }

  Rank& rank_;
  Communicator& comm_;
  bool symmetric_;
  int calls_ = 0;
  std::string label_;
};

class CollectiveMatrix
    : public ::testing::TestWithParam<std::tuple<RankMode, int, bool /*symmetric*/>> {};

TEST_P(CollectiveMatrix, IsExact) {
  const auto [mode, world_size, symmetric] = GetParam();
  testing::RankOptions options;
  options.mode = mode;
  testing::run_ranks(
      world_size, [&, is_symmetric = symmetric](Rank& rank) { Matrix(rank, is_symmetric).run(); },
      options);
}

std::string matrix_name(const ::testing::TestParamInfo<CollectiveMatrix::ParamType>& info) {
  const auto [mode, world_size, symmetric] = info.param;
  return std::string(mode == RankMode::kThreads ? "Threads" : "Forked") + "W" +
         std::to_string(world_size) + (symmetric ? "Symmetric" : "Staged");
}

INSTANTIATE_TEST_SUITE_P(
    All, CollectiveMatrix,
    ::testing::Combine(::testing::Values(RankMode::kThreads, RankMode::kForked),
                       ::testing::Values(1, 2, 3, 4, 5, 7, 8), ::testing::Bool()),
    matrix_name);

}  // namespace
}  // namespace shardbench::comm

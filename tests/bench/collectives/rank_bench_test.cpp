// Every collective on real ranks, tiny and awkward sizes: no wrong element, the wire bytes of the
// definition, and a spoilt element that is seen.

#include "bench/collectives/rank_bench.h"

#include <gtest/gtest.h>

#include "common/comm/call_shape.h"
#include "common/comm/link.h"
#include "common/comm/local/local.h"
#include "common/comm/shm/shm.h"
#include "tests/support/ranks.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using comm::ReduceOp;

CollectivesRequest tiny_request(int world_size) {
  CollectivesRequest request;
  request.world_size = world_size;
  request.iterations = 3;
  request.warmup = 1;
  request.checks = 2;
  request.max_bytes = 4096;
  return request;
}

std::vector<CollectiveCase> rows_of(int world_size, DType dtype) {
  std::vector<CollectiveCase> rows;
  for (const std::int64_t count : {1, 2, 3, 5, 17, 255, 510}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      if (dtype == DType::kInt64 && op == ReduceOp::kAverage) continue;
      rows.push_back({CollectiveKind::kAllReduce, dtype, op, -1, count});
      rows.push_back({CollectiveKind::kReduceScatter, dtype, op, -1, count});
      rows.push_back({CollectiveKind::kReduce, dtype, op, world_size - 1, count});
    }
    rows.push_back({CollectiveKind::kAllGather, dtype, std::nullopt, -1, count});
    rows.push_back({CollectiveKind::kBroadcast, dtype, std::nullopt, world_size / 2, count});
  }
  return rows;
}

/// Sent by one rank, by definition.
std::int64_t defined_bytes(const CollectiveCase& row, int world_size, int rank) {
  const auto element = static_cast<std::int64_t>(size_of(row.dtype));
  const std::int64_t part =
      row.kind == CollectiveKind::kAllReduce
          ? comm::all_reduce_slice(row.count, row.dtype, world_size, rank).size()
          : sharding::slice_of(row.count, world_size, rank).size();
  return comm::algo_bytes(row.kind, world_size, rank, row.root, row.bytes(), part * element).sent;
}

void check_all(comm::Communicator& comm, const comm::WireMatrix* wire, bool symmetric,
               DType dtype) {
  CollectivesRequest request = tiny_request(comm.world_size());
  request.symmetric = symmetric;
  RankBench bench(comm, wire, request);
  for (const CollectiveCase& row : rows_of(comm.world_size(), dtype)) {
    for (const bool in_place : {false, true}) {
      const RankMeasure measure = bench.measure(row, in_place);
      EXPECT_EQ(measure.wrong, 0) << name_of(row.kind) << ' ' << row.count << " x "
                                  << name_of(dtype) << (in_place ? " in place" : "");
      EXPECT_GT(measure.time_us, 0);
      EXPECT_EQ(measure.wire_bytes, defined_bytes(row, comm.world_size(), comm.rank()))
          << name_of(row.kind) << ' ' << row.count;
    }
  }
}

class RankBenchMatrix : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(RankBenchMatrix, NothingIsWrongAndTheWireBytesAreThoseOfTheDefinition) {
  const auto [world_size, symmetric] = GetParam();
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt64}) {
    testing::run_ranks(world_size, [&, symmetric = symmetric](testing::Rank& rank) {
      check_all(rank.comm, comm::wire_matrix(rank.job).get(), symmetric, dtype);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankBenchMatrix,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()));

TEST(RankBench, OneRankWithoutSharedMemory) {
  const auto comm = comm::make_local();
  for (const DType dtype : {DType::kFloat32, DType::kInt64}) {
    check_all(*comm, comm::local_wire_matrix().get(), true, dtype);
  }
}

TEST(RankBench, ASpoiltElementIsCountedOnceByItsRankAlone) {
  for (const CollectiveCase& row :
       {CollectiveCase{CollectiveKind::kAllReduce, DType::kBFloat16, ReduceOp::kSum, -1, 100},
        CollectiveCase{CollectiveKind::kAllGather, DType::kFloat32, std::nullopt, -1, 100},
        CollectiveCase{CollectiveKind::kReduceScatter, DType::kInt64, ReduceOp::kMax, -1, 100},
        CollectiveCase{CollectiveKind::kBroadcast, DType::kFloat16, std::nullopt, 0, 100},
        CollectiveCase{CollectiveKind::kReduce, DType::kFloat64, ReduceOp::kAverage, 1, 100}}) {
    testing::run_ranks(3, [&](testing::Rank& rank) {
      CollectivesRequest request = tiny_request(3);
      request.checks = 1;
      const auto wire = comm::wire_matrix(rank.job);
      RankBench bench(rank.comm, wire.get(), request,
                      [&](const CollectiveCase&, std::span<std::byte> output) {
                        if (rank.rank == 1) output.back() ^= std::byte{1};
                      });
      for (const bool in_place : {false, true}) {
        EXPECT_EQ(bench.measure(row, in_place).wrong, rank.rank == 1 ? 1 : 0) << name_of(row.kind);
      }
    });
  }
}

TEST(RankBench, WithoutChecksNothingIsCounted) {
  testing::run_ranks(2, [&](testing::Rank& rank) {
    CollectivesRequest request = tiny_request(2);
    request.checks = 0;
    const auto wire = comm::wire_matrix(rank.job);
    RankBench bench(
        rank.comm, wire.get(), request,
        [](const CollectiveCase&, std::span<std::byte> output) { output.front() ^= std::byte{1}; });
    const CollectiveCase row{CollectiveKind::kAllGather, DType::kFloat32, std::nullopt, -1, 7};
    EXPECT_EQ(bench.measure(row, false).wrong, 0);
  });
}

}  // namespace
}  // namespace shardbench::bench

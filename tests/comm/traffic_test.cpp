// Bytes counted where they are moved equal what the definitions say, for every collective.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "common/comm/link.h"
#include "common/comm/local/local.h"
#include "common/comm/recorder.h"
#include "common/comm/shm/shm.h"
#include "tests/comm/elements.h"
#include "tests/support/ranks.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using testing::Rank;
using testing::RankMode;

/// Issues every collective over `layout`, each kind under a phase of its own.
void issue_all(Communicator& comm, const ShardLayout& layout, DType dtype, bool symmetric) {
  TestBuffer full(comm, symmetric, dtype, layout.full_extent());
  TestBuffer shard(comm, symmetric, dtype, layout.shard_extent(comm.rank()));
  TestBuffer data(comm, symmetric, dtype, layout.total());
  for (std::int64_t i = 0; i < layout.full_extent(); ++i) full.set(i, 1);
  for (std::int64_t i = 0; i < layout.total(); ++i) data.set(i, 1);
  for (std::int64_t i = 0; i < layout.shard_extent(comm.rank()); ++i) shard.set(i, 1);
  const ReduceOp op = ReduceOp::kSum;
  comm.all_gather(layout, shard.buffer(), full.buffer(), {"ag", Phase::kForward}).wait_released();
  comm.reduce_scatter(layout, full.buffer(), shard.buffer(), op, false, {"rs", Phase::kBackward})
      .wait_released();
  comm.all_reduce(data.buffer(), op, {"ar", Phase::kBackward}).wait_released();
  for (int root = 0; root < comm.world_size(); ++root) {
    comm.broadcast(layout, root, shard.buffer(), full.buffer(), {"b", Phase::kForward})
        .wait_released();
    comm.reduce(layout, root, full.buffer(), shard.buffer(), op, true, {"r", Phase::kBackward})
        .wait_released();
  }
  comm.barrier({"end", Phase::kMetrics}).wait_released();
}

class Recorded : public ::testing::TestWithParam<std::tuple<RankMode, int, bool>> {};

TEST_P(Recorded, WireEqualsAlgoForEveryKind) {
  const auto [mode, world_size, symmetric] = GetParam();
  Job::Options options;
  options.world_size = world_size;
  options.guard_peers = mode == RankMode::kForked;
  options.timeout = std::chrono::seconds(60);
  const auto job = Job::create(options);
  const auto body = [&, is_symmetric = symmetric](int rank) -> std::string {
    const auto recorder = record(make_shm(job, rank), wire_matrix(job));
    for (const ShardLayout& layout : test_layouts(world_size)) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        recorder->quiesce();
        recorder->barrier({"before", Phase::kMetrics}).wait();
        recorder->reset();
        recorder->barrier({"start", Phase::kMetrics}).wait();
        issue_all(*recorder, layout, dtype, is_symmetric);
        recorder->quiesce();
        recorder->barrier({"counted", Phase::kMetrics}).wait();
        for (const TrafficEntry& entry : recorder->traffic()) {
          if (entry.wire.sent != entry.algo_bytes) {
            throw std::runtime_error(fmt::format("{}: wire {} algo {}", name_of(entry.kind),
                                                 entry.wire.sent, entry.algo_bytes));
          }
          const bool bounced = !is_symmetric && world_size > 1 && entry.algo_bytes > 0 &&
                               entry.kind != CollectiveKind::kAllReduce;
          if (is_symmetric && entry.wire.staging != 0) throw std::runtime_error("staged");
          if (bounced && entry.wire.staging == 0) throw std::runtime_error("not staged");
        }
      }
    }
    return "done";
  };
  const JobOutcome outcome =
      mode == RankMode::kForked ? run_forked(job, body) : run_threads(job, body);
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
  for (const std::string& result : outcome.results) EXPECT_EQ(result, "done");
}

INSTANTIATE_TEST_SUITE_P(
    All, Recorded,
    ::testing::Combine(::testing::Values(RankMode::kThreads, RankMode::kForked),
                       ::testing::Values(1, 2, 3, 4, 5, 7, 8), ::testing::Bool()));

// Sent and received by closed form, worked out by hand for 10 fp32 elements over 4 ranks (3 3 3 1).
TEST(Traffic, ByHand) {
  Job::Options options;
  options.world_size = 4;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    const auto recorder = record(make_shm(job, rank), wire_matrix(job));
    issue_all(*recorder, ShardLayout::even(10, 4), DType::kFloat32, true);
    recorder->quiesce();
    recorder->barrier({"counted", Phase::kInit}).wait();
    std::string text;
    for (const TrafficEntry& entry : recorder->traffic()) {
      text += fmt::format("{} {} x{} {} {} {};", name_of(entry.phase), name_of(entry.kind),
                          entry.calls, entry.payload_bytes, entry.wire.sent, entry.wire.received);
    }
    return text;
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
  // 40 bytes in all, rank 0's part 12, rank 3's 4; an all_reduce of 10 is one slice of 16, rank
  // 0's.
  EXPECT_EQ(outcome.results[0],
            "init barrier x1 0 0 0;"
            "forward all_gather x1 40 36 28;forward broadcast x4 40 36 28;"
            "backward reduce_scatter x1 40 28 36;backward all_reduce x1 40 120 120;"
            "backward reduce x4 40 28 36;metrics barrier x1 0 0 0;");
  EXPECT_EQ(outcome.results[3],
            "init barrier x1 0 0 0;"
            "forward all_gather x1 40 12 36;forward broadcast x4 40 12 36;"
            "backward reduce_scatter x1 40 36 12;backward all_reduce x1 40 40 40;"
            "backward reduce x4 40 36 12;metrics barrier x1 0 0 0;");
}

TEST(Recorder, KeepsCallsAndTimes) {
  Job::Options options;
  options.world_size = 2;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    const auto recorder = record(make_shm(job, rank), wire_matrix(job));
    TestBuffer data(*recorder, true, DType::kFloat32, 1 << 16);
    for (std::int64_t i = 0; i < 1 << 16; ++i) data.set(i, 1);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    recorder->all_reduce(data.buffer(), ReduceOp::kSum, {"h.3", Phase::kBackward}).wait();
    recorder->quiesce();
    const std::vector<CallRecord>& calls = recorder->calls();
    EXPECT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].label, "h.3");
    EXPECT_EQ(calls[0].kind, CollectiveKind::kAllReduce);
    EXPECT_EQ(calls[0].payload_bytes, 4 << 16);
    EXPECT_EQ(calls[0].algo_bytes, 4 << 16);
    EXPECT_GT(calls[0].finished_ns, calls[0].issued_ns);
    EXPECT_GT(calls[0].move_ns, 0);
    if (rank == 0) {
      EXPECT_GT(recorder->peer_wait_ns(), 5'000'000);  // the other one slept 20 ms
    }
    EXPECT_EQ(recorder->move_ns(), calls[0].move_ns);
    recorder->barrier({"end", Phase::kInit}).wait();
    recorder->reset();
    EXPECT_TRUE(recorder->calls().empty());
    EXPECT_TRUE(recorder->traffic().empty());
    EXPECT_EQ(recorder->peer_wait_ns() + recorder->move_ns(), 0);
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
}

TEST(Recorder, WithoutCountersSaysSo) {
  const auto recorder = record(make_local(), nullptr);
  float value = 1;
  recorder->all_reduce({&value, 1, DType::kFloat32}, ReduceOp::kSum, {"x", Phase::kInit}).wait();
  ASSERT_EQ(recorder->traffic().size(), 1u);
  EXPECT_EQ(recorder->traffic()[0].wire.sent, -1);
  EXPECT_EQ(recorder->traffic()[0].algo_bytes, 0);
}

}  // namespace
}  // namespace shardbench::comm

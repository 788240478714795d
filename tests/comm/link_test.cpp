#include "common/comm/link.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "common/comm/call_shape.h"
#include "common/comm/link_schedule.h"
#include "common/comm/recorder.h"
#include "common/comm/shm/shm.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

TEST(LinkModel, Parses) {
  const LinkModel fast = LinkModel::parse("25Gbit,20us");
  EXPECT_DOUBLE_EQ(fast.bytes_per_second, 25e9 / 8);
  EXPECT_EQ(fast.latency, nanoseconds(20'000));
  const LinkModel slow = LinkModel::parse("100MB/s,1ms");
  EXPECT_DOUBLE_EQ(slow.bytes_per_second, 100e6);
  EXPECT_EQ(slow.latency, nanoseconds(1'000'000));
  EXPECT_DOUBLE_EQ(LinkModel::parse("1.5kbit,0s").bytes_per_second, 187.5);
  EXPECT_EQ(LinkModel::parse("1GB/s,2.5us").latency, nanoseconds(2500));
}

TEST(LinkModel, TextComesBack) {
  for (const std::string text :
       {"25Gbit,20us", "1Gbit,0us", "800Mbit,1ms", "9.6kbit,3s", "2.5Gbit,1500ns"}) {
    EXPECT_EQ(LinkModel::parse(text).to_string(), text);
  }
  EXPECT_EQ(LinkModel::parse("100MB/s,1ms").to_string(), "800Mbit,1ms");
}

TEST(LinkModel, RefusesWithTheValidForm) {
  for (const std::string text : {"", "25Gbit", "25Gbit,", ",20us", "25,20us", "25gbit,20us",
                                 "0Gbit,1us", "-1Gbit,1us", "1Gbit,-1us", "1Gbit,20", "infGbit,1us",
                                 "nanGbit,1us", "1Gbit,20us,", "1Gbit 20us", "1Gbit,1e9s"}) {
    try {
      LinkModel::parse(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("25Gbit,20us"), std::string::npos);
    }
  }
}

TEST(Rounds, PerCollective) {
  using K = CollectiveKind;
  const auto all = [](int world_size) {
    std::vector<int> rounds;
    for (int k = 0; k < kCollectiveKindCount; ++k) {
      rounds.push_back(rounds_of(static_cast<K>(k), world_size));
    }
    return rounds;
  };
  EXPECT_EQ(all(1), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(all(2), (std::vector<int>{1, 1, 2, 1, 1, 2}));
  EXPECT_EQ(all(5), (std::vector<int>{4, 4, 8, 3, 3, 6}));
  EXPECT_EQ(all(8), (std::vector<int>{7, 7, 14, 3, 3, 6}));
}

// What all ranks send together equals what they receive, and the means are the textbook's.
TEST(AlgoBytes, SumsAndMeans) {
  using K = CollectiveKind;
  for (const int world : {1, 2, 3, 4, 5, 7, 8}) {
    const std::int64_t count = 1000;
    for (int k = 0; k < kCollectiveKindCount; ++k) {
      const auto kind = static_cast<K>(k);
      std::int64_t sent = 0;
      std::int64_t received = 0;
      for (int rank = 0; rank < world; ++rank) {
        const std::int64_t part = all_reduce_slice(count, DType::kFloat32, world, rank).size() * 4;
        const AlgoBytes bytes = algo_bytes(kind, world, rank, world / 2, count * 4, part);
        sent += bytes.sent;
        received += bytes.received;
      }
      EXPECT_EQ(sent, received) << name_of(kind) << " W=" << world;
      const std::int64_t factor = kind == K::kBarrier ? 0 : kind == K::kAllReduce ? 2 : 1;
      EXPECT_EQ(sent, factor * (world - 1) * count * 4) << name_of(kind) << " W=" << world;
    }
  }
}

TEST(Schedule, StartsWithTheLastArrivalOrTheFreePort) {
  const LinkModel link{1e9, nanoseconds(1000)};
  const steady_clock::time_point t0{};
  const auto at = [&](std::int64_t ns) { return t0 + nanoseconds(ns); };
  // 3 rounds of 1 us, then 5000 bytes at 1 byte/ns.
  PortUse use = schedule(link, 3, {5000, 2000}, at(100), {at(0), at(0)});
  EXPECT_EQ(use.start, at(100));
  EXPECT_EQ(use.finish, at(100 + 3000 + 5000));
  EXPECT_EQ(use.free.send, at(100 + 3000 + 5000));
  EXPECT_EQ(use.free.receive, at(100 + 3000 + 2000));
  use = schedule(link, 1, {300, 700}, at(100), use.free);
  EXPECT_EQ(use.start, at(8100));
  EXPECT_EQ(use.finish, at(8100 + 1000 + 700));
  use = schedule(link, 0, {0, 0}, at(5), {at(3), at(4)});
  EXPECT_EQ(use.finish, at(5));
}

TEST(Schedule, DirectionsAreSeparate) {
  const LinkModel link{1e9, nanoseconds(1000)};
  const steady_clock::time_point t0{};
  const auto at = [&](std::int64_t ns) { return t0 + nanoseconds(ns); };
  // A broadcast of this rank, and at once one that comes from a peer: neither waits for the other.
  PortUse use = schedule(link, 1, {5000, 0}, at(0), {});
  EXPECT_EQ(use.free.send, at(6000));
  EXPECT_EQ(use.free.receive, at(0));
  use = schedule(link, 1, {0, 700}, at(10), use.free);
  EXPECT_EQ(use.finish, at(1710));
  EXPECT_EQ(use.free.send, at(6000));
  EXPECT_EQ(use.free.receive, at(1710));
  // Another that comes waits for that direction; what uses both, or has no bytes, waits for both.
  EXPECT_EQ(schedule(link, 1, {0, 100}, at(20), use.free).start, at(1710));
  EXPECT_EQ(schedule(link, 1, {1, 1}, at(20), use.free).start, at(6000));
  use = schedule(link, 2, {0, 0}, at(20), use.free);
  EXPECT_EQ(use.start, at(6000));
  EXPECT_EQ(use.free.send, at(8000));
  EXPECT_EQ(use.free.receive, at(8000));
}

// Two calls over a port of 1 MB/s: 10 KB each way take 10 ms each, one after the other.
TEST(Link, DelaysAndQueues) {
  Job::Options options;
  options.world_size = 2;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    const auto comm =
        record(with_link(make_shm(job, rank), LinkModel::parse("1MB/s,1ms")), wire_matrix(job));
    std::vector<float> a(2500, static_cast<float>(rank + 1));
    std::vector<float> b(2500, static_cast<float>(rank + 3));
    const CallTag tag{"x", Phase::kBackward};
    Work first = comm->all_reduce({a.data(), 2500, DType::kFloat32}, ReduceOp::kSum, tag);
    Work second = comm->all_reduce({b.data(), 2500, DType::kFloat32}, ReduceOp::kSum, tag);
    second.wait();  // out of order: the port still serves the first one first
    const std::int64_t second_done = steady_clock::now().time_since_epoch().count();
    EXPECT_TRUE(first.done());
    first.wait();
    EXPECT_EQ(a[0], 3);
    EXPECT_EQ(b[2499], 7);
    const auto arrival = first.last_arrival().time_since_epoch().count();
    EXPECT_GE(second_done - arrival, 2 * (2'000'000 + 10'000'000));
    const std::vector<CallRecord>& calls = comm->calls();
    EXPECT_GE(calls[0].finished_ns - arrival, 12'000'000);
    EXPECT_GE(calls[1].finished_ns - arrival, 24'000'000);
    EXPECT_GT(comm->peer_wait_ns(), 0);
    EXPECT_EQ(comm->traffic()[0].wire.sent, 2 * 10'000);
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
}

TEST(Link, QuiesceWaitsForThePortAndDroppedWorkIsSafe) {
  Job::Options options;
  options.world_size = 2;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    auto comm = with_link(make_shm(job, rank), LinkModel::parse("1MB/s,0us"));
    std::vector<float> a(2500, 1);
    const auto start = steady_clock::now();
    comm->all_reduce({a.data(), 2500, DType::kFloat32}, ReduceOp::kSum, {"x", Phase::kInit});
    comm->quiesce();
    EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds(10));
    EXPECT_EQ(a[0], 2);
    Work kept = comm->barrier({"end", Phase::kInit});
    kept.wait();
    comm.reset();
    EXPECT_NO_THROW(kept.wait());
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
}

// A long broadcast that leaves rank 0, then a short one that comes: the short one is there long
// before the long one, and quiesce waits for both.
TEST(Link, OppositeDirectionsPassEachOther) {
  Job::Options options;
  options.world_size = 2;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    auto comm = with_link(make_shm(job, rank), LinkModel::parse("1MB/s,0us"));
    const auto large_layout = sharding::ShardLayout::contiguous({25000, 0});
    const auto small_layout = sharding::ShardLayout::contiguous({0, 250});
    std::vector<float> shard(25000, static_cast<float>(rank + 1));
    std::vector<float> large(25000);
    std::vector<float> small(250);
    const ConstBuffer own{shard.data(), rank == 0 ? 25000 : 250, DType::kFloat32};
    const CallTag tag{"x", Phase::kInit};
    Work longer =
        comm->broadcast(large_layout, 0, own, {large.data(), 25000, DType::kFloat32}, tag);
    Work shorter = comm->broadcast(small_layout, 1, own, {small.data(), 250, DType::kFloat32}, tag);
    const auto start = longer.last_arrival();
    shorter.wait();
    EXPECT_FALSE(longer.done());
    comm->quiesce();
    EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds(100));
    EXPECT_TRUE(longer.done());
    EXPECT_EQ(large[0], 1);
    EXPECT_EQ(small[249], 2);
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
}

TEST(Link, AbortEndsTheSleep) {
  Job::Options options;
  options.world_size = 2;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    const auto comm = with_link(make_shm(job, rank), LinkModel::parse("1KB/s,0us"));
    std::vector<float> a(2500000, 1);  // hours
    Work work = comm->all_reduce({a.data(), 2500000, DType::kFloat32}, ReduceOp::kSum, {"x"});
    if (rank == 0) {
      while (!work.state()->arrived()) std::this_thread::yield();
      comm->abort("stop");
    }
    EXPECT_THROW(work.wait(), JobAborted);
    return "ended";
  });
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->message, "stop");
  EXPECT_EQ(outcome.results[1], "ended");
}

}  // namespace
}  // namespace shardbench::comm

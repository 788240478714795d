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
  const LinkSpeed link{1e9, nanoseconds(1000)};
  const steady_clock::time_point t0{};
  const auto at = [&](std::int64_t ns) { return t0 + nanoseconds(ns); };
  // 3 rounds of 1 us, then 5000 bytes at 1 byte/ns.
  PortUse use = schedule(link, {3, {5000, 2000}}, at(100), {at(0), at(0)});
  EXPECT_EQ(use.start, at(100));
  EXPECT_EQ(use.finish, at(100 + 3000 + 5000));
  EXPECT_EQ(use.free.send, at(100 + 3000 + 5000));
  EXPECT_EQ(use.free.receive, at(100 + 3000 + 2000));
  use = schedule(link, {1, {300, 700}}, at(100), use.free);
  EXPECT_EQ(use.start, at(8100));
  EXPECT_EQ(use.finish, at(8100 + 1000 + 700));
  use = schedule(link, {0, {0, 0}}, at(5), {at(3), at(4)});
  EXPECT_EQ(use.finish, at(5));
}

TEST(Schedule, DirectionsAreSeparate) {
  const LinkSpeed link{1e9, nanoseconds(1000)};
  const steady_clock::time_point t0{};
  const auto at = [&](std::int64_t ns) { return t0 + nanoseconds(ns); };
  // A broadcast of this rank, and at once one that comes from a peer: neither waits for the other.
  PortUse use = schedule(link, {1, {5000, 0}}, at(0), {});
  EXPECT_EQ(use.free.send, at(6000));
  EXPECT_EQ(use.free.receive, at(0));
  use = schedule(link, {1, {0, 700}}, at(10), use.free);
  EXPECT_EQ(use.finish, at(1710));
  EXPECT_EQ(use.free.send, at(6000));
  EXPECT_EQ(use.free.receive, at(1710));
  // Another that comes waits for that direction; what uses both, or has no bytes, waits for both.
  EXPECT_EQ(schedule(link, {1, {0, 100}}, at(20), use.free).start, at(1710));
  EXPECT_EQ(schedule(link, {1, {1, 1}}, at(20), use.free).start, at(6000));
  use = schedule(link, {2, {0, 0}}, at(20), use.free);
  EXPECT_EQ(use.start, at(6000));
  EXPECT_EQ(use.free.send, at(8000));
  EXPECT_EQ(use.free.receive, at(8000));
}

/// The load of one call over parts of these counts (fp32), by rank.
std::vector<CallLoad> loads(const LinkModel& link, CollectiveKind kind, int root,
                            const std::vector<std::int64_t>& counts) {
  const auto layout = sharding::ShardLayout::contiguous(counts);
  const int world = static_cast<int>(counts.size());
  std::vector<CallLoad> result;
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t part = 4 * layout.count(rank);
    const bool rooted = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
    const CallShape shape{kind,
                          DType::kFloat32,
                          root,
                          rooted ? 4 * layout.count(root) : 4 * layout.total(),
                          rooted && rank != root ? 0 : part,
                          &layout};
    result.push_back(load_of(link, shape, world, rank));
  }
  return result;
}

TEST(Hosts, EveryByteCrossesOncePerHost) {
  using K = CollectiveKind;
  LinkModel link{LinkSpeed{1e9, {}}, HostLink{LinkSpeed{1e6, {}}, 2}};
  // Parts of 10, 20 on host 0, 30, 0 on host 1: 30 elements on either.
  std::vector<CallLoad> all = loads(link, K::kAllGather, 0, {10, 20, 30, 0});
  for (const CallLoad& load : all) {
    EXPECT_EQ(load.host.rounds, 1);
    EXPECT_EQ(load.host.bytes.sent, 4 * 30);
    EXPECT_EQ(load.host.bytes.received, 4 * 30);
    EXPECT_EQ(load.rank.rounds, 1);
    EXPECT_EQ(load.rank.bytes.received, 4 * 30);  // half of what its host has
  }
  // Three hosts of two: 4, 8 and 24 elements of 36.
  all = loads(link, K::kReduceScatter, 0, {4, 0, 4, 4, 12, 12});
  EXPECT_EQ(all[0].host.bytes.sent, 4 * (36 - 4));
  EXPECT_EQ(all[0].host.bytes.received, 4 * 2 * 4);
  EXPECT_EQ(all[5].host.bytes.sent, 4 * (36 - 24));
  EXPECT_EQ(all[5].host.rounds, 2);
  // The root's host sends to the other two; there the rank in the root's place hands it on.
  all = loads(link, K::kBroadcast, 3, {0, 0, 0, 50, 0, 0});
  EXPECT_EQ(all[2].host.bytes.sent, 4 * 2 * 50);
  EXPECT_EQ(all[0].host.bytes.received, 4 * 50);
  EXPECT_EQ(all[3].rank.bytes.sent, 4 * 50);
  EXPECT_EQ(all[1].rank.bytes.sent, 4 * 50);
  EXPECT_EQ(all[0].rank.bytes.received, 4 * 50);
  // One host: nothing between hosts.
  link.hosts->ranks_per_host = 4;
  all = loads(link, K::kAllGather, 0, {10, 20, 30, 0});
  EXPECT_EQ(all[0].host.bytes.sent, 0);
  EXPECT_EQ(all[0].host.rounds, 0);
}

TEST(Hosts, AllReduceByTheSlicesOfTheHost) {
  const LinkModel link{LinkSpeed{1e9, {}}, HostLink{LinkSpeed{1e6, {}}, 2}};
  const CallShape shape{CollectiveKind::kAllReduce, DType::kFloat32, 0, 4 * 1000, 0, nullptr};
  std::int64_t sent = 0;
  for (const int rank : {0, 2}) sent += load_of(link, shape, 4, rank).host.bytes.sent;
  EXPECT_EQ(sent, 2 * 4 * 1000);  // 2 (H - 1) S over both hosts
  EXPECT_EQ(load_of(link, shape, 4, 1).host.bytes.sent, load_of(link, shape, 4, 0).host.bytes.sent);
}

TEST(Hosts, MustBeFull) {
  const LinkModel link{LinkSpeed{1e9, {}}, HostLink{LinkSpeed{1e6, {}}, 2}};
  EXPECT_NO_THROW(validate(link, 4));
  EXPECT_THROW(validate(link, 3), UserError);
  EXPECT_EQ(link.to_string(), "8Gbit,0us; 8Mbit,0us between hosts of 2");
}

// 4 ranks on 2 hosts: 20 KB of each rank's 40 KB all-reduce cross between the hosts twice.
TEST(Link, HostsDelayWhatCrosses) {
  Job::Options options;
  options.world_size = 4;
  const auto job = Job::create(options);
  const JobOutcome outcome = run_threads(job, [&](int rank) -> std::string {
    LinkModel link = LinkModel::parse("1GB/s,0us");
    link.hosts = HostLink{LinkSpeed::parse("1MB/s,0us"), 2};
    const auto comm = with_link(make_shm(job, rank), link);
    std::vector<float> a(10000, static_cast<float>(rank));
    Work work = comm->all_reduce({a.data(), 10000, DType::kFloat32}, ReduceOp::kSum, {"x"});
    work.wait();
    const auto took = steady_clock::now() - work.last_arrival();
    EXPECT_GE(took, std::chrono::milliseconds(40));
    EXPECT_EQ(a[9999], 6);
    return "done";
  });
  ASSERT_TRUE(outcome.ok) << outcome.failure->message;
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
      while (!work.state()->reached(Work::State::Goal::kArrived)) std::this_thread::yield();
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

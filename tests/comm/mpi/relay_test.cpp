// Hierarchical transfers: ranks on hosts made up by the test, over an MPI that delivers between
// threads, with a shared segment for the ranks of each host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "common/comm/mpi/options.h"
#include "common/core/error.h"
#include "tests/comm/conformance/suite.h"
#include "tests/comm/mpi/fake_mpi.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;
using testing::FakeMpi;
using ::testing::HasSubstr;
using Hosts = std::vector<int>;

/// What the ranks of a test run on.
struct Setting {
  Hosts hosts;  ///< by rank
  MpiOptions options = {.route = MpiRoute::kHierarchical};
  FakeMpi::Faults faults = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

JobOutcome run_on(const Setting& setting, const std::function<void(Communicator&, Job&)>& body) {
  const auto world_size = static_cast<int>(setting.hosts.size());
  const FakeMpi mpi(world_size, setting.faults);
  const auto job = Job::create({.world_size = world_size, .timeout = setting.timeout});
  std::map<int, std::shared_ptr<Job>> host_jobs;
  for (const int host : setting.hosts) {
    const auto size = static_cast<int>(std::ranges::count(setting.hosts, host));
    if (!host_jobs.contains(host)) host_jobs[host] = Job::create({.world_size = size});
  }
  return run_threads(job, [&](int rank) -> std::string {
    FakeMpi::enter_rank(rank);
    const auto runtime = std::make_shared<MpiRuntime>(mpi.api(), world_size);
    const int host = setting.hosts[static_cast<std::size_t>(rank)];
    const auto comm = make_mpi(runtime, job, setting.options, {setting.hosts, host_jobs.at(host)});
    body(*comm, *job);
    return "done";
  });
}

void expect_ok(const JobOutcome& outcome) {
  EXPECT_TRUE(outcome.ok) << (outcome.failure ? outcome.failure->message : "");
}

/// Everything is cut into pieces: chunks, segments, messages.
MpiOptions tiny_options() {
  return {.limits = {.largest = 96, .alone = 40},
          .chunk = 48,
          .exchange = 64,
          .route = MpiRoute::kHierarchical,
          .relay_chunk = 128};
}

/// Ranks of equal hosts, one after the other.
Hosts blocks(int hosts, int per_host) {
  Hosts all;
  for (int host = 0; host < hosts; ++host)
    all.insert(all.end(), static_cast<std::size_t>(per_host), host);
  return all;
}

class OnHosts : public ::testing::TestWithParam<std::tuple<Hosts, bool /*synchronous*/>> {};

TEST_P(OnHosts, ExactInSmallestPieces) {
  const auto [hosts, synchronous] = GetParam();
  for (const bool symmetric : {true, false}) {
    expect_ok(run_on(
        {hosts, tiny_options(), {.synchronous = synchronous}}, [&](Communicator& comm, Job&) {
          conformance::Context context(comm, nullptr, symmetric);
          for (const auto* cases : {&conformance::exact_cases(), &conformance::order_cases()}) {
            for (const conformance::Case& each : *cases) {
              context.begin(each.name);
              each.run(context);
              comm.quiesce();
            }
          }
          for (const std::string& failure : context.failures()) {
            ADD_FAILURE() << failure;
          }
        }));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnHosts,
                         ::testing::Combine(::testing::Values(blocks(1, 2), blocks(1, 3),
                                                              blocks(2, 2), blocks(3, 2),
                                                              blocks(2, 4), blocks(4, 2),
                                                              Hosts{0, 1, 0, 1}, Hosts{0, 0, 1}),
                                            ::testing::Bool()));

TEST(Relay, ConformsOnTwoHosts) {
  expect_ok(run_on({blocks(2, 2), {.route = MpiRoute::kHierarchical}, {.max_tag = 0x7fffffff}},
                   [](Communicator& comm, Job&) {
                     const auto wire = mpi_wire_matrix(comm);
                     for (const std::string& failure :
                          conformance::run_suite(comm, wire.get(), conformance::WireRule::kSums)) {
                       ADD_FAILURE() << failure;
                     }
                   }));
}

/// Bytes that all ranks of a host sent to other hosts, by host.
std::vector<std::int64_t> across_hosts(const Hosts& hosts, MpiRoute route,
                                       const std::function<Work(Communicator&, TestBuffer&)>& issue,
                                       std::int64_t count) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(hosts.back()) + 1, 0);
  std::mutex mutex;
  expect_ok(run_on({hosts, {.route = route, .relayed = 100'000}}, [&](Communicator& comm, Job&) {
    TestBuffer data(comm, true, DType::kFloat32, count);
    for (std::int64_t i = 0; i < count; ++i) data.set(i, 1);
    issue(comm, data).wait();
    comm.quiesce();
    const auto wire = mpi_wire_matrix(comm);
    const auto host_of = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
    const int own = host_of(comm.rank());
    const std::lock_guard lock(mutex);
    for (int peer = 0; peer < comm.world_size(); ++peer) {
      if (host_of(peer) == own) continue;
      for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
        sent[static_cast<std::size_t>(own)] +=
            wire->bytes(static_cast<CollectiveKind>(kind), Phase::kForward, comm.rank(), peer);
      }
    }
  }));
  return sent;
}

constexpr CallTag kTag{"counted", Phase::kForward};
constexpr std::int64_t kElements = 48'000;
constexpr std::int64_t kPayload = 4 * kElements;

Work gather(Communicator& comm, TestBuffer& data) {
  const ShardLayout layout = ShardLayout::even(kElements, comm.world_size());
  const std::int64_t own = layout.count(comm.rank());
  auto* shard = static_cast<float*>(data.buffer().data) + own * comm.rank();
  return comm.all_gather(layout, {shard, own, DType::kFloat32}, data.buffer(), kTag);
}

Work sum(Communicator& comm, TestBuffer& data) {
  return comm.all_reduce(data.buffer(), ReduceOp::kSum, kTag);
}

Work spread_from_last(Communicator& comm, TestBuffer& data) {
  const int root = comm.world_size() - 1;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.world_size()), 0);
  counts.back() = kElements;
  return comm.broadcast(ShardLayout::contiguous(counts), root, data.buffer(), data.buffer(), kTag);
}

TEST(Relay, AllGatherCrossesOncePerHost) {
  using ::testing::Each;
  EXPECT_THAT(across_hosts(blocks(2, 2), MpiRoute::kFlat, gather, kElements), Each(kPayload));
  EXPECT_THAT(across_hosts(blocks(2, 2), MpiRoute::kAuto, gather, kElements), Each(kPayload / 2));
  EXPECT_THAT(across_hosts(blocks(2, 4), MpiRoute::kFlat, gather, kElements), Each(2 * kPayload));
  EXPECT_THAT(across_hosts(blocks(2, 4), MpiRoute::kAuto, gather, kElements), Each(kPayload / 2));
  EXPECT_THAT(across_hosts({0, 1, 0, 1}, MpiRoute::kAuto, gather, kElements), Each(kPayload / 2));
}

TEST(Relay, AllReduceCrossesOncePerDirection) {
  using ::testing::Each;
  using ::testing::ElementsAre;
  EXPECT_THAT(across_hosts(blocks(2, 2), MpiRoute::kFlat, sum, kElements), Each(2 * kPayload));
  EXPECT_THAT(across_hosts(blocks(2, 2), MpiRoute::kAuto, sum, kElements), Each(kPayload));
  EXPECT_THAT(across_hosts(blocks(3, 2), MpiRoute::kAuto, sum, kElements),
              ElementsAre(kPayload, 2 * kPayload, kPayload));
}

TEST(Relay, BroadcastCrossesOncePerHost) {
  using ::testing::ElementsAre;
  EXPECT_THAT(across_hosts(blocks(3, 2), MpiRoute::kFlat, spread_from_last, kElements),
              ElementsAre(0, 0, 4 * kPayload));
  EXPECT_THAT(across_hosts(blocks(3, 2), MpiRoute::kAuto, spread_from_last, kElements),
              ElementsAre(0, 0, 2 * kPayload));
}

// Where it moves no less, or hosts are no grid, every rank sends to every other.
TEST(Relay, StaysFlat) {
  using ::testing::ElementsAre;
  EXPECT_THAT(across_hosts({0, 0, 1}, MpiRoute::kHierarchical, gather, kElements),
              ElementsAre(2 * kPayload / 3, 2 * kPayload / 3));
  const auto narrow = [](Communicator& comm, TestBuffer& data) {
    return comm.all_reduce({data.buffer().data, kElements, DType::kBFloat16}, ReduceOp::kSum, kTag);
  };
  EXPECT_THAT(across_hosts(blocks(2, 2), MpiRoute::kHierarchical, narrow, kElements),
              ElementsAre(kPayload, kPayload));
  EXPECT_THAT(across_hosts(blocks(2, 2), MpiRoute::kAuto, sum, 64), ElementsAre(512, 512))
      << "small payloads";
}

TEST(Relay, TimeoutNamesWhoIsMissing) {
  for (const int absent : {0, 1, 3}) {
    const JobOutcome outcome =
        run_on({.hosts = blocks(2, 2), .timeout = std::chrono::milliseconds(300)},
               [&](Communicator& comm, Job& job) {
                 TestBuffer data(comm, true, DType::kFloat32, kElements);
                 comm.barrier({"first", Phase::kInit}).wait();
                 if (comm.rank() == absent) {
                   while (!job.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   job.check_alive();
                 }
                 sum(comm, data).wait();
               });
    ASSERT_FALSE(outcome.ok);
    EXPECT_THAT(outcome.failure->message, HasSubstr("all_reduce #1 'counted' (phase forward)"));
    EXPECT_EQ(outcome.failure->rank, absent) << outcome.failure->message;
    EXPECT_EQ(outcome.failure->reason, AbortRecord::Reason::kTimeout);
  }
}

TEST(Relay, OtherCallIsNamed) {
  const JobOutcome outcome = run_on({.hosts = blocks(2, 2)}, [](Communicator& comm, Job&) {
    TestBuffer data(comm, true, DType::kFloat32, kElements);
    (comm.rank() == 3 ? gather(comm, data) : sum(comm, data)).wait();
  });
  ASSERT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.failure->message, HasSubstr("order differs: call #0 is "));
}

TEST(Relay, AbortReachesWaits) {
  const JobOutcome outcome = run_on({.hosts = blocks(2, 2)}, [](Communicator& comm, Job&) {
    TestBuffer data(comm, false, DType::kFloat32, kElements);
    if (comm.rank() == 2) comm.abort("enough");
    sum(comm, data).wait();
  });
  ASSERT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.failure->message, "enough");
}

// Nobody waits on rank 1: its own thread hands on what the others need.
TEST(Relay, GoesOnWhileNobodyWaits) {
  std::atomic<int> finished{0};
  expect_ok(run_on({.hosts = blocks(2, 2)}, [&](Communicator& comm, Job& job) {
    TestBuffer data(comm, true, DType::kFloat32, kElements);
    for (std::int64_t i = 0; i < kElements; ++i) data.set(i, comm.rank());
    Work work = sum(comm, data);
    if (comm.rank() != 1) {
      work.wait();
      ++finished;
    }
    while (finished < 3) {
      job.check_alive();
      std::this_thread::yield();
    }
    work.wait();
    for (std::int64_t i = 0; i < kElements; ++i) ASSERT_EQ(data.get(i), 6);
  }));
}

}  // namespace
}  // namespace shardbench::comm

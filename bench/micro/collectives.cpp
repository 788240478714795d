// Collectives over shared memory: forked ranks, symmetric memory, time of the slowest rank.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/collectives/bandwidth.h"
#include "bench/micro/micro.h"
#include "common/comm/job.h"
#include "common/comm/shm/shm.h"

namespace shardbench::micro {

namespace {

using comm::CollectiveKind;
using sharding::ShardLayout;

/// One size of one collective, on one rank.
class Call {
 public:
  Call(comm::Communicator& comm, CollectiveKind kind, DType dtype, std::int64_t count)
      : comm_(comm), kind_(kind) {
    const bool rooted = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.world_size()), 0);
    counts[0] = count;
    layout_ =
        rooted ? ShardLayout::contiguous(counts) : ShardLayout::even(count, comm.world_size());
    const std::size_t element = size_of(dtype);
    const std::int64_t own = layout_.count(comm.rank());
    full_memory_ = comm.symmetric_empty(static_cast<std::size_t>(count) * element);
    shard_memory_ = comm.symmetric_empty(static_cast<std::size_t>(own) * element);
    full_ = {full_memory_.data(), count, dtype};
    shard_ = {shard_memory_.data(), own, dtype};
    std::memset(full_.data, 0, full_memory_.bytes());
    if (own > 0) std::memset(shard_.data, 0, shard_memory_.bytes());
  }

  void operator()() {
    constexpr comm::CallTag kTag{"benchmark", Phase::kForward};
    switch (kind_) {
      case CollectiveKind::kAllGather:
        return comm_.all_gather(layout_, shard_, full_, kTag).wait();
      case CollectiveKind::kReduceScatter:
        return comm_.reduce_scatter(layout_, full_, shard_, comm::ReduceOp::kSum, false, kTag)
            .wait();
      case CollectiveKind::kAllReduce:
        return comm_.all_reduce(full_, comm::ReduceOp::kSum, kTag).wait();
      case CollectiveKind::kBroadcast:
        return comm_.broadcast(layout_, 0, shard_, full_, kTag).wait();
      case CollectiveKind::kReduce:
        return comm_.reduce(layout_, 0, full_, shard_, comm::ReduceOp::kSum, false, kTag).wait();
      case CollectiveKind::kBarrier:
        return comm_.barrier(kTag).wait();
    }
  }

 private:
  comm::Communicator& comm_;
  CollectiveKind kind_;
  ShardLayout layout_;
  comm::SymmetricMemory full_memory_, shard_memory_;
  comm::Buffer full_, shard_;
};

/// Seconds per call over `calls` calls, of the slowest rank. Throws what ended the job.
double seconds_per_call(CollectiveKind kind, DType dtype, int world_size, std::int64_t count,
                        std::int64_t calls) {
  comm::Job::Options options;
  options.world_size = world_size;
  const std::shared_ptr<comm::Job> job = comm::Job::create(options);
  const comm::JobOutcome outcome = comm::run_forked(job, [&](int rank) {
    const std::unique_ptr<comm::Communicator> comm = comm::make_shm(job, rank);
    Call call(*comm, kind, dtype, count);
    for (int warmup = 0; warmup < 2; ++warmup) call();
    comm->barrier({"start", Phase::kMetrics}).wait();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    comm->quiesce();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return std::to_string(elapsed.count());
  });
  if (!outcome.ok) {
    throw std::runtime_error(outcome.failure ? outcome.failure->message : "stopped by a signal");
  }
  double slowest = 0;
  for (const std::string& text : outcome.results) slowest = std::max(slowest, std::stod(text));
  return slowest / static_cast<double>(calls);
}

void measure(benchmark::State& state, CollectiveKind kind, DType dtype) {
  const int world_size = static_cast<int>(state.range(0));
  const std::int64_t bytes = state.range(1);
  const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype));
  double seconds = 0;
  try {
    // Ranks are forked once for all iterations, not once for each.
    seconds = seconds_per_call(kind, dtype, world_size, count,
                               static_cast<std::int64_t>(state.max_iterations));
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
    return;
  }
  for (auto _ : state) state.SetIterationTime(seconds);
  set_bytes(state, static_cast<double>(bytes));
  set_rate(state, "bus_bytes_per_second",
           static_cast<double>(bytes) * bench::bus_factor(kind, world_size));
}

}  // namespace

void register_benchmarks() {
  for (CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const std::string name = std::string(name_of(kind)) + "/" + std::string(name_of(dtype));
      benchmark::RegisterBenchmark(
          name.c_str(), [kind, dtype](benchmark::State& state) { measure(state, kind, dtype); })
          ->ArgNames({"W", "bytes"})
          ->ArgsProduct({{2, 4}, {4 << 10, 256 << 10, 4 << 20, 64 << 20}})
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace shardbench::micro

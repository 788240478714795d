// lab_routes [--repetitions=N] BYTES...: each collective over MPI flat and hierarchical, and over
// shared memory where all ranks are on one host, by turns, in the same processes. Rank 0 prints
// lines of JSON: one about the build and the machine, then one per collective and size, with the
// times of the slowest rank and the bytes that the busiest host sends to others in one call, as the
// program counts them and as the interfaces (eth0) do.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/call_spec.h"
#include "common/comm/launch/join.h"
#include "common/comm/mpi/mpi.h"
#include "common/comm/shm/shm.h"
#include "common/core/build_info.h"
#include "common/core/machine_info.h"

namespace {

using namespace shardbench;
using comm::CollectiveKind;

constexpr comm::CallTag kTag{"timed", Phase::kForward};
constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};

/// One way between the ranks, with memory of its own.
struct Route {
  std::string_view name;
  std::unique_ptr<comm::Communicator> comm;
  std::shared_ptr<const comm::WireMatrix> wire;
};

/// Bytes that this host's interface has sent; 0 where there is no such interface.
std::int64_t interface_bytes() {
  std::int64_t bytes = 0;
  std::ifstream("/sys/class/net/eth0/statistics/tx_bytes") >> bytes;
  return bytes;
}

/// One collective with one payload on one route.
class Calls {
 public:
  Calls(comm::Communicator& comm, CollectiveKind kind, std::int64_t count)
      : comm_(comm), kind_(kind) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.world_size()), 0);
    counts.back() = count;
    layout_ = comm::has_root(kind) ? sharding::ShardLayout::contiguous(counts)
                                   : sharding::ShardLayout::even(count, comm.world_size());
    const std::int64_t own = layout_.count(comm.rank());
    full_memory_ = comm.symmetric_empty(static_cast<std::size_t>(count) * sizeof(float));
    shard_memory_ = comm.symmetric_empty(static_cast<std::size_t>(own) * sizeof(float));
    std::memset(full_memory_.data(), 0, full_memory_.bytes());
    std::memset(shard_memory_.data(), 0, shard_memory_.bytes());
    full_ = {full_memory_.data(), count, DType::kFloat32};
    shard_ = {shard_memory_.data(), own, DType::kFloat32};
  }

  void operator()() { issue().wait_released(); }

 private:
  comm::Work issue() {
    const int root = comm_.world_size() - 1;
    const auto sum = comm::ReduceOp::kSum;
    switch (kind_) {
      case CollectiveKind::kAllReduce:
        return comm_.all_reduce(full_, sum, kTag);
      case CollectiveKind::kAllGather:
        return comm_.all_gather(layout_, shard_, full_, kTag);
      case CollectiveKind::kReduceScatter:
        return comm_.reduce_scatter(layout_, full_, shard_, sum, false, kTag);
      case CollectiveKind::kBroadcast:
        return comm_.broadcast(layout_, root, shard_, full_, kTag);
      case CollectiveKind::kReduce:
        return comm_.reduce(layout_, root, full_, shard_, sum, false, kTag);
      case CollectiveKind::kBarrier:
        break;
    }
    return comm_.barrier(kTag);
  }

  comm::Communicator& comm_;
  CollectiveKind kind_;
  sharding::ShardLayout layout_;
  comm::SymmetricMemory full_memory_, shard_memory_;
  comm::Buffer full_, shard_;
};

class Bench {
 public:
  Bench(comm::Group& group, std::vector<Route> routes, int repetitions)
      : group_(group), routes_(std::move(routes)), repetitions_(repetitions) {}

  void measure(CollectiveKind kind, std::int64_t bytes) {
    std::vector<Calls> calls;
    for (Route& route : routes_) {
      calls.emplace_back(*route.comm, kind, bytes / static_cast<std::int64_t>(sizeof(float)));
    }
    std::vector<std::vector<double>> times(routes_.size());
    std::vector<std::int64_t> counted(routes_.size()), seen(routes_.size());
    for (Calls& call : calls) call();
    for (int i = 0; i < repetitions_; ++i) {
      for (std::size_t r = 0; r < routes_.size(); ++r) {
        meet();
        const std::int64_t counted_before = sent_across(routes_[r], kind);
        const std::int64_t seen_before = interface_bytes();
        const auto start = std::chrono::steady_clock::now();
        calls[r]();
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - start;
        times[r].push_back(took.count());
        meet();
        counted[r] += sent_across(routes_[r], kind) - counted_before;
        seen[r] += interface_bytes() - seen_before;
      }
    }
    std::string line = fmt::format(R"({{"kind": "{}", "bytes": {}, "hosts": {}, "ranks": {})",
                                   name_of(kind), bytes, hosts(), group_.world_size());
    for (std::size_t r = 0; r < routes_.size(); ++r)
      line += summary(r, times[r], counted[r], seen[r]);
    if (group_.rank() == 0) fmt::print("{}}}\n", line);
    std::fflush(stdout);
  }

 private:
  int hosts() const { return 1 + *std::ranges::max_element(group_.hosts()); }
  void meet() { routes_.front().comm->barrier({"meet", Phase::kMetrics}).wait(); }

  /// By this rank, to other hosts.
  std::int64_t sent_across(const Route& route, CollectiveKind kind) const {
    const std::vector<int>& hosts = group_.hosts();
    const auto own = static_cast<std::size_t>(group_.rank());
    std::int64_t bytes = 0;
    for (std::size_t peer = 0; peer < hosts.size(); ++peer) {
      if (hosts[peer] == hosts[own]) continue;
      bytes += route.wire->bytes(kind, kTag.phase, group_.rank(), static_cast<int>(peer));
    }
    return bytes;
  }

  /// The largest of all ranks' values, one by one.
  void take_largest(std::vector<double>& values) {
    const comm::Buffer all{values.data(), static_cast<std::int64_t>(values.size()),
                           DType::kFloat64};
    routes_.front()
        .comm->all_reduce(all, comm::ReduceOp::kMax, {"largest", Phase::kMetrics})
        .wait();
  }

  std::string summary(std::size_t r, std::vector<double> times, std::int64_t counted,
                      std::int64_t seen) {
    take_largest(times);
    std::ranges::sort(times);
    std::vector<double> by_host(static_cast<std::size_t>(hosts()), 0);
    by_host[static_cast<std::size_t>(group_.hosts()[static_cast<std::size_t>(group_.rank())])] =
        static_cast<double>(counted) / repetitions_;
    const comm::Buffer all{by_host.data(), hosts(), DType::kFloat64};
    routes_.front().comm->all_reduce(all, comm::ReduceOp::kSum, {"hosts", Phase::kMetrics}).wait();
    std::vector<double> interfaces = {static_cast<double>(seen) / repetitions_};
    take_largest(interfaces);
    return fmt::format(
        R"(, "{}": {{"min_us": {:.1f}, "median_us": {:.1f}, "counted_bytes": {:.0f}, "interface_bytes": {:.0f}}})",
        routes_[r].name, times.front(), times[times.size() / 2], *std::ranges::max_element(by_host),
        interfaces.front());
  }

  comm::Group& group_;
  std::vector<Route> routes_;
  int repetitions_;
};

void print_context() {
  const MachineInfo machine = machine_info();
  const BuildInfo build = build_info();
  fmt::print(
      R"({{"context": {{"date": "{}", "version": "{}", "git_sha": "{}", "build_type": "{}", )"
      R"("compiler": "{}", "cpu_model": "{}", "num_cpus": {}, "memory_bytes": {}, )"
      R"("load_avg": [{}, {}, {}], "kernel": "{}"}}}})"
      "\n",
      machine.date, build.version, build.git_sha, build.build_type, build.compiler,
      machine.cpu_model, machine.num_cpus, machine.memory_bytes, machine.load_avg[0],
      machine.load_avg[1], machine.load_avg[2], machine.kernel);
}

int run(int argc, char** argv) {
  constexpr std::string_view kRepetitions = "--repetitions=";
  int repetitions = 10;
  std::vector<std::int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with(kRepetitions)) {
      repetitions = std::atoi(argv[i] + kRepetitions.size());
    } else {
      sizes.push_back(std::atoll(argv[i]));
    }
  }
  const auto runtime = comm::MpiRuntime::start();
  comm::JoinOptions options;
  options.rank = runtime->rank();
  options.world_size = runtime->world_size();
  options.share = [&](std::string_view text) { return runtime->all_gather_text(text).front(); };
  const std::unique_ptr<comm::Group> group = comm::join(options);
  if (group->rank() == 0) print_context();
  std::vector<Route> routes;
  for (const auto& [name, route] : {std::pair("flat", comm::MpiRoute::kFlat),
                                    std::pair("hierarchical", comm::MpiRoute::kHierarchical)}) {
    auto ranks = comm::make_mpi(runtime, *group, route);
    auto wire = comm::mpi_wire_matrix(*ranks);
    routes.push_back({name, std::move(ranks), std::move(wire)});
  }
  if (group->host_job()->world_size() == group->world_size()) {
    routes.push_back(
        {"shm", comm::make_shm(group->job(), group->rank()), comm::wire_matrix(group->job())});
  }
  Bench bench(*group, std::move(routes), std::max(1, repetitions));
  for (const CollectiveKind kind : kKinds) {
    for (const std::int64_t bytes : sizes) bench.measure(kind, bytes);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

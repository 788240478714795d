// mpi_side_by_side [--chunk=BYTES] BYTES...: plain MPI's collectives and shardbench's `mpi` backend
// by turns, in one process, on the same memory. Prints one JSON line per collective and size; ratio
// = ours / plain.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "bench/peers/mpi_plain.h"
#include "common/comm/mpi/options.h"
#include "common/core/error.h"

namespace {

using namespace shardbench;

class SideBySide {
 public:
  explicit SideBySide(comm::Communicator& comm) : comm_(comm) {}

  void measure(int kind, std::size_t bytes) {
    plain_buffers buffers = plain_allocate(static_cast<int>(bytes / sizeof(float)));
    set_up(kind, buffers);
    const int repetitions = plain_repetitions(bytes);
    std::vector<double> plain(static_cast<std::size_t>(repetitions));
    std::vector<double> ours(plain.size());
    for (int warmup = 0; warmup < 5; ++warmup) {
      plain_call(kind, &buffers);
      call(kind, buffers);
    }
    for (std::size_t i = 0; i < plain.size(); ++i) {
      plain[i] = timed([&] { plain_call(kind, &buffers); });
      ours[i] = timed([&] { call(kind, buffers); });
    }
    const plain_summary theirs = plain_summarise(plain.data(), repetitions);
    const plain_summary mine = plain_summarise(ours.data(), repetitions);
    if (buffers.rank == 0) {
      fmt::print(
          "{{\"kind\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"repetitions\": {}, "
          "\"plain_min_ns\": {:.0f}, \"plain_median_ns\": {:.0f}, \"min_ns\": {:.0f}, "
          "\"median_ns\": {:.0f}, \"min_ratio\": {:.3f}, \"median_ratio\": {:.3f}}}\n",
          plain_kind_names[kind], buffers.size, bytes, repetitions, theirs.min_ns, theirs.median_ns,
          mine.min_ns, mine.median_ns, mine.min_ns / theirs.min_ns,
          mine.median_ns / theirs.median_ns);
      std::fflush(stdout);
    }
    plain_free(&buffers);
  }

 private:
  template <class Call>
  static double timed(const Call& call) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = plain_now_ns();
    call();
    return plain_now_ns() - start;
  }

  /// The root's part is everything where there is one.
  void set_up(int kind, const plain_buffers& buffers) {
    std::vector<std::int64_t> counts(buffers.counts, buffers.counts + buffers.size);
    if (kind >= 3) {
      counts.assign(counts.size(), 0);
      counts[0] = buffers.count;
    }
    layout_ = sharding::ShardLayout::contiguous(counts);
  }

  void call(int kind, const plain_buffers& b) {
    const comm::Buffer full{b.full, b.count, DType::kFloat32};
    const comm::Buffer shard{b.shard, b.counts[b.rank], DType::kFloat32};
    const comm::CallTag tag{"timed", Phase::kForward};
    const auto sum = comm::ReduceOp::kSum;
    comm::Work work;
    if (kind == 0) work = comm_.all_reduce(full, sum, tag);
    if (kind == 1) work = comm_.all_gather(layout_, shard, full, tag);
    if (kind == 2) work = comm_.reduce_scatter(layout_, full, shard, sum, false, tag);
    if (kind == 3) work = comm_.broadcast(layout_, 0, full, full, tag);
    if (kind == 4) work = comm_.reduce(layout_, 0, full, full, sum, false, tag);
    work.wait_released();
  }

  comm::Communicator& comm_;
  sharding::ShardLayout layout_;
};

int run(int argc, char** argv) {
  const auto runtime = comm::MpiRuntime::start();
  const auto job = comm::Job::create({.world_size = runtime->world_size()});
  comm::MpiOptions options;
  const std::string_view chunk = "--chunk=";
  int first = 1;
  if (argc > 1 && std::string_view(argv[1]).starts_with(chunk)) {
    options.chunk = std::strtoull(argv[first++] + chunk.size(), nullptr, 10);
  }
  const auto comm = comm::make_mpi(runtime, job, options);
  SideBySide programs(*comm);
  for (int kind = 0; kind < PLAIN_KINDS; ++kind) {
    for (int i = first; i < argc; ++i) programs.measure(kind, std::strtoull(argv[i], nullptr, 10));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  try {
    const int code = run(argc, argv);
    MPI_Finalize();
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}

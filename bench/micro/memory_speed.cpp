// memory_speed [--world=N] [--repetitions=N] [--out=FILE] SIZE...: each collective over shared
// memory and, by turns with it, bare loops with the same reads and writes on the same memory, all
// ranks at once. `share` is bare time / time of the collective: 1 where it costs nothing more.
// Times are from the moment that the first rank begins to the moment that the last one has
// finished.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro/streams.h"
#include "common/comm/call_spec.h"
#include "common/comm/job.h"
#include "common/comm/shm/segment_job.h"
#include "common/comm/shm/shm.h"
#include "common/core/build_info.h"
#include "common/core/error.h"
#include "common/core/machine_info.h"

namespace shardbench::micro {
namespace {

using comm::CollectiveKind;
using sharding::Range;

constexpr comm::CallTag kTag{"timed", Phase::kForward};
constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};
/// What is timed by turns.
constexpr std::string_view kWays[] = {"collective", "bare", "bare_streamed"};

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// One collective of one payload on one rank, and the loops that move as much.
class Subject {
 public:
  Subject(comm::Communicator& comm, comm::SegmentJob& job, CollectiveKind kind, std::int64_t count)
      : comm_(comm), job_(job), kind_(kind), count_(count) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.world_size()), 0);
    counts[0] = count;
    layout_ = comm::has_root(kind) ? sharding::ShardLayout::contiguous(counts)
                                   : sharding::ShardLayout::even(count, comm.world_size(), 16);
    // The same on every rank, so that blocks lie at the same offsets of all arenas.
    const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
    full_ = comm.symmetric_empty(bytes);
    shard_ = comm.symmetric_empty(bytes);
    std::fill_n(floats(full_), count, 1.0F);
    std::fill_n(floats(shard_), count, 1.0F);
  }

  void run(std::size_t way) {
    if (way == 0) return call().wait_released();
    bare(way == 1 ? Stores::kCached : Stores::kStreamed);
  }
  /// Whether this rank has anything to do in it.
  bool takes_part(std::size_t way) const {
    return way == 0 || kind_ != CollectiveKind::kReduce || comm_.rank() == 0;
  }

 private:
  static float* floats(const comm::SymmetricMemory& memory) {
    return static_cast<float*>(memory.data());
  }
  /// The same block of another rank.
  float* of(int rank, const comm::SymmetricMemory& memory) const {
    const auto* own = static_cast<const std::byte*>(memory.data());
    return reinterpret_cast<float*>(job_.segment().arena(rank) +
                                    (own - job_.segment().arena(comm_.rank())));
  }
  Range part(int rank) const { return sharding::slice_of(count_, comm_.world_size(), rank, 16); }

  comm::Work call() {
    const comm::Buffer full{full_.data(), count_, DType::kFloat32};
    const comm::Buffer shard{shard_.data(), count_, DType::kFloat32};
    const auto sum = comm::ReduceOp::kSum;
    switch (kind_) {
      case CollectiveKind::kAllReduce:
        return comm_.all_reduce(full, sum, kTag);
      case CollectiveKind::kAllGather:
        return comm_.all_gather(layout_, shard, full, kTag);
      case CollectiveKind::kReduceScatter:
        return comm_.reduce_scatter(layout_, full, shard, sum, false, kTag);
      case CollectiveKind::kBroadcast:
        return comm_.broadcast(layout_, 0, shard, full, kTag);
      case CollectiveKind::kReduce:
        return comm_.reduce(layout_, 0, full, shard, sum, false, kTag);
      case CollectiveKind::kBarrier:
        break;
    }
    return {};
  }

  void bare(Stores stores) const {
    const int ranks = comm_.world_size();
    const Range own = part(comm_.rank());
    std::vector<const float*> from;
    std::vector<float*> to;
    for (int rank = 0; rank < ranks; ++rank) from.push_back(of(rank, full_));
    switch (kind_) {
      case CollectiveKind::kAllGather:
        for (int step = 0; step < ranks; ++step) {
          const int rank = (comm_.rank() + step) % ranks;
          bare_copy(floats(full_) + part(rank).begin, of(rank, shard_), part(rank).size(), stores);
        }
        return;
      case CollectiveKind::kBroadcast:
        return bare_copy(floats(full_), of(0, shard_), count_, stores);
      case CollectiveKind::kReduce:
        to = {floats(shard_)};
        if (comm_.rank() == 0) bare_sum(to, from, count_, stores);
        return;
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kAllReduce:
        for (const float*& data : from) data += own.begin;
        to = {floats(shard_)};
        if (kind_ == CollectiveKind::kAllReduce) {
          to.clear();
          for (int rank = 0; rank < ranks; ++rank) to.push_back(of(rank, full_) + own.begin);
        }
        return bare_sum(to, from, own.size(), stores);
      case CollectiveKind::kBarrier:
        return;
    }
  }

  comm::Communicator& comm_;
  comm::SegmentJob& job_;
  CollectiveKind kind_;
  std::int64_t count_;
  sharding::ShardLayout layout_;
  comm::SymmetricMemory full_, shard_;
};

struct Request {
  int world_size = 2;
  int repetitions = 15;
  std::string out;
  std::vector<double> mebibytes;
};

/// Begin and end of every timed piece of one rank, as text.
std::string rank_main(const std::shared_ptr<comm::Job>& job, int rank, CollectiveKind kind,
                      std::int64_t count, int repetitions) {
  const auto comm = comm::make_shm(job, rank);
  Subject subject(*comm, *comm::as_segment_job(job), kind, count);
  std::string times;
  for (int i = 0; i < repetitions; ++i) {
    for (std::size_t way = 0; way < std::size(kWays); ++way) {
      subject.run(way);  // each finds the caches as it leaves them itself
      comm->barrier(kTag).wait();
      const std::int64_t begin = now_ns();
      subject.run(way);
      const std::int64_t end = now_ns();
      comm->barrier(kTag).wait();
      times += subject.takes_part(way) ? fmt::format("{} {} ", begin, end) : "0 0 ";
    }
  }
  return times;
}

/// Nanoseconds by way and repetition.
std::vector<std::vector<double>> measure(const Request& request, CollectiveKind kind,
                                         std::int64_t count) {
  comm::Job::Options options;
  options.world_size = request.world_size;
  const std::shared_ptr<comm::Job> job = comm::Job::create(options);
  const comm::JobOutcome outcome = comm::run_forked(
      job, [&](int rank) { return rank_main(job, rank, kind, count, request.repetitions); });
  if (!outcome.ok) throw JobAborted(outcome.failure ? outcome.failure->message : "interrupted");
  std::vector<std::vector<double>> times(std::size(kWays));
  std::vector<std::istringstream> ranks;
  for (const std::string& text : outcome.results) ranks.emplace_back(text);
  for (int i = 0; i < request.repetitions; ++i) {
    for (auto& of_way : times) {
      std::int64_t first_begin = std::numeric_limits<std::int64_t>::max();
      std::int64_t last_end = 0;
      for (std::istringstream& rank : ranks) {
        std::int64_t begin = 0;
        std::int64_t end = 0;
        rank >> begin >> end;
        if (begin == 0) continue;
        first_begin = std::min(first_begin, begin);
        last_end = std::max(last_end, end);
      }
      of_way.push_back(static_cast<double>(last_end - first_begin));
    }
  }
  for (auto& of_way : times) std::ranges::sort(of_way);
  return times;
}

/// One JSON line; the better one of the two bare loops counts.
std::string report(const Request& request, CollectiveKind kind, double mebibytes) {
  const auto count = static_cast<std::int64_t>(mebibytes * (1 << 20) / sizeof(float));
  const auto times = measure(request, kind, count);
  const auto median = [](const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; };
  const double bare_min = std::min(times[1].front(), times[2].front());
  const double bare_median = std::min(median(times[1]), median(times[2]));
  const auto load = machine_info().load_avg[0];
  fmt::print("{:>14} {:>10.4g} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f} {:>8.2f} {:>6.1f}\n",
             name_of(kind), mebibytes, times[0].front() / 1e3, times[1].front() / 1e3,
             times[2].front() / 1e3, bare_min / times[0].front(), bare_median / median(times[0]),
             load);
  std::fflush(stdout);
  return fmt::format(
      R"({{"kind": "{}", "bytes": {}, "min_ns": {:.0f}, "median_ns": {:.0f}, )"
      R"("bare_min_ns": {:.0f}, "bare_median_ns": {:.0f}, "bare_streamed_min_ns": {:.0f}, )"
      R"("bare_streamed_median_ns": {:.0f}, "share_min": {:.3f}, "share_median": {:.3f}, )"
      R"("load": {}}})",
      name_of(kind), count * static_cast<std::int64_t>(sizeof(float)), times[0].front(),
      median(times[0]), times[1].front(), median(times[1]), times[2].front(), median(times[2]),
      bare_min / times[0].front(), bare_median / median(times[0]), load);
}

Request parse(int argc, char** argv) {
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&](std::string_view name) -> const char* {
      return word.starts_with(name) ? argv[i] + name.size() : nullptr;
    };
    if (const char* world = value("--world=")) {
      request.world_size = std::atoi(world);
    } else if (const char* repetitions = value("--repetitions=")) {
      request.repetitions = std::atoi(repetitions);
    } else if (const char* out = value("--out=")) {
      request.out = out;
    } else {
      const double size = std::atof(argv[i]);
      request.mebibytes.push_back(word.ends_with("B") ? size / (1 << 20) : size);
    }
    const bool good = request.world_size >= 2 && request.world_size <= 4 &&
                      request.repetitions > 0 &&
                      (request.mebibytes.empty() || request.mebibytes.back() > 0);
    if (!good)
      throw UserError::format("{}: a world of 2 to 4 ranks, sizes in MiB, or in bytes as 8B", word);
  }
  if (request.mebibytes.empty()) request.mebibytes = {16, 64, 128};
  return request;
}

int run(int argc, char** argv) {
  const Request request = parse(argc, argv);
  const MachineInfo machine = machine_info();
  const BuildInfo build = build_info();
  fmt::print("{:>14} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}\n", "", "MiB", "us", "bare",
             "streamed", "share", "median", "load");
  std::string rows;
  for (const CollectiveKind kind : kKinds) {
    for (const double mebibytes : request.mebibytes) {
      if (!rows.empty()) rows += ",\n  ";
      rows += report(request, kind, mebibytes);
    }
  }
  if (request.out.empty()) return 0;
  std::ofstream(request.out) << fmt::format(
      "{{\"context\": {{\"date\": \"{}\", \"git_sha\": \"{}\", \"build_type\": \"{}\", "
      "\"cpu_model\": \"{}\", \"num_cpus\": {}, \"world_size\": {}, \"repetitions\": {}}},\n "
      "\"rows\": [\n  {}]}}\n",
      machine.date, build.git_sha, build.build_type, machine.cpu_model, machine.num_cpus,
      request.world_size, request.repetitions, rows);
  return 0;
}

}  // namespace
}  // namespace shardbench::micro

int main(int argc, char** argv) {
  try {
    return shardbench::micro::run(argc, argv);
  } catch (const shardbench::UserError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

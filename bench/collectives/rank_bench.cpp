#include "bench/collectives/rank_bench.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "bench/collectives/pattern.h"
#include "common/comm/copy.h"
#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using Clock = std::chrono::steady_clock;

constexpr comm::CallTag kTag{"bench", Phase::kInit};
constexpr int kPoison = 0xa5;

struct Free {
  void operator()(void* data) const { std::free(data); }
};

}  // namespace

/// Both buffers: memory that peers reach, or this process's own.
struct RankBench::Memory {
  Memory(comm::Communicator& comm, bool symmetric, std::size_t bytes) {
    for (int i = 0; i < 2; ++i) {
      if (symmetric) {
        shared[i] = comm.symmetric_empty(bytes);
        data[i] = static_cast<std::byte*>(shared[i].data());
      } else {
        const std::size_t rounded = (bytes + 63) / 64 * 64;
        plain[i].reset(std::aligned_alloc(64, rounded));
        if (plain[i] == nullptr) throw std::bad_alloc();
        data[i] = static_cast<std::byte*>(plain[i].get());
      }
    }
  }
  comm::SymmetricMemory shared[2];
  std::unique_ptr<void, Free> plain[2];
  std::byte* data[2] = {};
};

RankBench::RankBench(comm::Communicator& comm, const comm::WireMatrix* wire,
                     const CollectivesRequest& request, Spoil spoil)
    : comm_(comm), wire_(wire), request_(request), spoil_(std::move(spoil)) {
  memory_ = std::make_unique<Memory>(comm, request.symmetric,
                                     static_cast<std::size_t>(request.max_bytes));
  send_ = memory_->data[0];
  receive_ = memory_->data[1];
}

RankBench::~RankBench() = default;

std::byte* RankBench::at(std::byte* base, std::int64_t element) const {
  return base + element * static_cast<std::int64_t>(size_of(row_.dtype));
}

comm::Buffer RankBench::buffer(std::byte* base, std::int64_t count) const {
  return {base, count, row_.dtype};
}

void RankBench::set_up(const CollectiveCase& row, bool in_place) {
  SHARDBENCH_CHECK_LE(row.bytes(), request_.max_bytes);
  row_ = row;
  in_place_ = in_place;
  const int world_size = comm_.world_size();
  own_ = sharding::slice_of(row.count, world_size, comm_.rank());
  if (row.root >= 0) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(world_size), 0);
    counts[static_cast<std::size_t>(row.root)] = row.count;
    layout_ = sharding::ShardLayout::contiguous(counts);
  } else {
    layout_ = sharding::ShardLayout::even(row.count, world_size);
  }
}

void RankBench::copy_input() {
  const auto bytes = static_cast<std::size_t>(row_.bytes());
  comm::copy_part(receive_, send_, bytes, bytes);
}

comm::Work RankBench::issue() {
  const std::int64_t count = row_.count;
  std::byte* const first = in_place_ ? receive_ : send_;
  switch (row_.kind) {
    case CollectiveKind::kAllReduce:
      if (!in_place_) copy_input();
      return comm_.all_reduce(buffer(receive_, count), *row_.op, kTag);
    case CollectiveKind::kAllGather: {
      std::byte* const shard = in_place_ ? at(receive_, own_.begin) : send_;
      return comm_.all_gather(layout_, buffer(shard, own_.size()), buffer(receive_, count), kTag);
    }
    case CollectiveKind::kReduceScatter: {
      std::byte* const shard = in_place_ ? at(receive_, own_.begin) : receive_;
      return comm_.reduce_scatter(layout_, buffer(first, count), buffer(shard, own_.size()),
                                  *row_.op, false, kTag);
    }
    case CollectiveKind::kBroadcast:
      return comm_.broadcast(layout_, row_.root, buffer(first, count), buffer(receive_, count),
                             kTag);
    case CollectiveKind::kReduce:
      return comm_.reduce(layout_, row_.root, buffer(first, count), buffer(receive_, count),
                          *row_.op, false, kTag);
    case CollectiveKind::kBarrier:
      break;
  }
  SHARDBENCH_CHECK(false, "no bandwidth of {}", name_of(row_.kind));
  return {};
}

void RankBench::put_in(std::uint64_t seed) {
  const auto bytes = static_cast<std::size_t>(row_.bytes());
  std::memset(receive_, kPoison, bytes);
  std::memset(send_, kPoison, bytes);
  const Pattern mine = Pattern::of_rank(row_.dtype, comm_.world_size(), comm_.rank(), seed);
  std::byte* const first = in_place_ ? receive_ : send_;
  if (row_.kind == CollectiveKind::kAllGather) {
    mine.fill(in_place_ ? at(receive_, own_.begin) : send_, own_.begin, own_.size());
  } else if (row_.kind != CollectiveKind::kBroadcast || comm_.rank() == row_.root) {
    mine.fill(first, 0, row_.count);
  }
}

std::span<std::byte> RankBench::output() const {
  const auto element = static_cast<std::int64_t>(size_of(row_.dtype));
  std::int64_t begin = 0;
  std::int64_t count = row_.count;
  if (row_.kind == CollectiveKind::kReduceScatter) {
    begin = in_place_ ? own_.begin : 0;
    count = own_.size();
  } else if (row_.kind == CollectiveKind::kReduce && comm_.rank() != row_.root) {
    count = 0;
  }
  return {at(receive_, begin), static_cast<std::size_t>(count * element)};
}

std::int64_t RankBench::wrong_in_output(std::uint64_t seed) const {
  const int world_size = comm_.world_size();
  const std::byte* const data = output().data();
  const auto count = static_cast<std::int64_t>(output().size() / size_of(row_.dtype));
  if (row_.kind == CollectiveKind::kBroadcast) {
    return Pattern::of_rank(row_.dtype, world_size, row_.root, seed).wrong(data, 0, count);
  }
  if (row_.kind != CollectiveKind::kAllGather) {
    const std::int64_t begin = row_.kind == CollectiveKind::kReduceScatter ? own_.begin : 0;
    return Pattern::reduced(row_.dtype, *row_.op, world_size, seed).wrong(data, begin, count);
  }
  std::int64_t wrong = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const sharding::Range part = sharding::slice_of(count, world_size, rank);
    if (part.size() == 0) continue;
    wrong += Pattern::of_rank(row_.dtype, world_size, rank, seed)
                 .wrong(at(receive_, part.begin), part.begin, part.size());
  }
  return wrong;
}

std::int64_t RankBench::check() {
  std::int64_t wrong = 0;
  for (int round = 0; round < request_.checks; ++round) {
    const auto seed = static_cast<std::uint64_t>(round) + 1;
    put_in(seed);
    meet();  // peers write to this rank's buffers only after it has filled them
    issue().wait();
    meet();
    if (spoil_) spoil_(row_, output());
    wrong += wrong_in_output(seed);
  }
  return wrong;
}

void RankBench::meet() {
  comm_.quiesce();
  comm_.barrier(kTag).wait();
}

std::int64_t RankBench::wire_sent() const {
  std::int64_t sent = 0;
  for (int peer = 0; wire_ != nullptr && peer < comm_.world_size(); ++peer) {
    if (peer != comm_.rank()) sent += wire_->bytes(row_.kind, kTag.phase, comm_.rank(), peer);
  }
  return sent;
}

RankMeasure RankBench::measure(const CollectiveCase& row, bool in_place) {
  set_up(row, in_place);
  RankMeasure result;
  result.wrong = check();
  // Zeros stay zeros, however often they are added up.
  std::memset(send_, 0, static_cast<std::size_t>(row.bytes()));
  std::memset(receive_, 0, static_cast<std::size_t>(row.bytes()));
  meet();
  for (int i = 0; i < request_.warmup; ++i) issue().wait();
  meet();
  const std::int64_t wire_before = wire_sent();
  comm_.barrier(kTag).wait();

  const Clock::time_point start = Clock::now();
  for (int i = 1; i < request_.iterations; ++i) issue().wait();
  issue().wait_released();
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;

  meet();
  result.time_us = elapsed.count() / request_.iterations;
  result.wire_bytes = wire_ == nullptr ? -1 : (wire_sent() - wire_before) / request_.iterations;
  comm_.barrier(kTag).wait();
  return result;
}

}  // namespace shardbench::bench

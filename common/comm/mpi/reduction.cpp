#include "common/comm/mpi/reduction.h"

#include <algorithm>

#include "common/comm/reduce.h"

namespace shardbench::comm {

using sharding::Range;
using sharding::Segment;

void Reduction::start(const CallSpec& spec, std::span<const Segment> own,
                      std::int64_t chunk_elements, MpiTransport& transport, const MessageUse& use,
                      StagingPool& pool) {
  own_.assign(own.begin(), own.end());
  chunk_elements_ = chunk_elements;
  rank_ = transport.rank();
  world_size_ = transport.world_size();
  sources_.resize(static_cast<std::size_t>(world_size_));
  summed_ = 0;
  total_ = 0;
  for (const Segment& segment : own_) total_ += segment.count;
  bytes_ = static_cast<std::size_t>(total_) * spec.element_size();
  chunks_ = (total_ + chunk_elements_ - 1) / chunk_elements_;
  if (chunks_ > 0 && world_size_ > 1) {
    const std::size_t bytes =
        static_cast<std::size_t>(std::min(total_, chunk_elements_)) * spec.element_size();
    slot_bytes_ = (bytes + 63) / 64 * 64;
    const auto slots = static_cast<std::size_t>(std::min(chunks_, kSlots) * (world_size_ - 1));
    staging_ = pool.take(slots * slot_bytes_);
  }
  for (std::int64_t chunk = 0; chunk < std::min(chunks_, kSlots); ++chunk) {
    ask(chunk, transport, use);
  }
}

Range Reduction::range_of(std::int64_t chunk) const {
  return {chunk * chunk_elements_, std::min(total_, (chunk + 1) * chunk_elements_)};
}

std::byte* Reduction::staged(std::int64_t chunk, int peer) const {
  const std::int64_t place = chunk % kSlots * (world_size_ - 1) + (peer < rank_ ? peer : peer - 1);
  return static_cast<std::byte*>(staging_.data()) + static_cast<std::size_t>(place) * slot_bytes_;
}

void Reduction::ask(std::int64_t chunk, MpiTransport& transport, const MessageUse& use) {
  Messages& incoming = incoming_[static_cast<std::size_t>(chunk % kSlots)];
  incoming.clear();
  const Range range = range_of(chunk);
  for (int step = 1; step < world_size_; ++step) {
    const int peer = (rank_ - step + world_size_) % world_size_;
    const ByteRange into{staged(chunk, peer),
                         static_cast<std::size_t>(range.size()) * use.element_size};
    incoming.add(transport.receive(peer, use, {&into, 1}));
  }
}

bool Reduction::advance(MpiTransport& transport, const MessageUse& use) {
  if (done()) return false;
  return incoming_[static_cast<std::size_t>(summed_ % kSlots)].advance(transport, use);
}

Range Reduction::sum(const CallSpec& spec, MpiTransport& transport, const MessageUse& use) {
  const auto element = static_cast<std::int64_t>(spec.element_size());
  const Range range = range_of(summed_);
  std::int64_t at = 0;  // bytes into the chunk
  Elements(own_).for_each_run(
      range.begin, range.end,
      [&](std::int64_t full_offset, std::int64_t shard_offset, std::int64_t count) {
        for (int rank = 0; rank < world_size_; ++rank) {
          sources_[static_cast<std::size_t>(rank)] =
              rank == rank_ ? spec.source + full_offset * element : staged(summed_, rank) + at;
        }
        void* const target = spec.target + shard_offset * element;
        reduce_elements(spec.dtype, spec.op, sources_, {&target, 1}, count, spec.accumulate);
        at += count * element;
      });
  if (summed_ + kSlots < chunks_) ask(summed_ + kSlots, transport, use);
  ++summed_;
  return range;
}

void Reduction::add_missing(MpiTransport& transport, const MessageUse& use,
                            std::vector<bool>& peers) {
  if (done()) return;
  incoming_[static_cast<std::size_t>(summed_ % kSlots)].add_missing(transport, use, peers);
}

void Reduction::drop(MpiTransport& transport) {
  for (Messages& incoming : incoming_) incoming.drop(transport);
}

}  // namespace shardbench::comm

#include <algorithm>

#include "common/comm/call_shape.h"
#include "common/comm/mpi/engine.h"
#include "common/comm/segments.h"

namespace shardbench::comm {
namespace {

using sharding::Range;
using sharding::Segment;

constexpr int kEveryOwner = -1;

std::byte* writable(const std::byte* data) { return const_cast<std::byte*>(data); }

}  // namespace

std::int64_t MpiEngine::chunk_elements(const CallSpec& spec) const {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(options_.chunk / spec.element_size()));
}

/// The same on every rank. Sums of the narrow types are made in fp32, and would travel so: they
/// stay flat, as do reductions to owners, which with two ranks per host move no less.
bool MpiEngine::is_relayed(const CallSpec& spec) const {
  if (!ground_ || spec.count == 0) return false;
  const bool is_narrow = spec.dtype == DType::kBFloat16 || spec.dtype == DType::kFloat16;
  switch (spec.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      break;
    case CollectiveKind::kAllReduce:
      if (!ground_->grid.in_order || is_narrow) return false;
      break;
    default:
      return false;
  }
  return options_.route == MpiRoute::kHierarchical ||
         static_cast<std::size_t>(spec.count) * spec.element_size() >= options_.relayed;
}

void MpiEngine::start_relay(MpiCall& call) {
  if (call.spec_.kind == CollectiveKind::kAllReduce) {
    if (call.sum_ == nullptr) call.sum_ = std::make_unique<RelayedSum>(*ground_, pool_);
    call.relay_ = call.sum_.get();
  } else {
    if (call.spread_ == nullptr) call.spread_ = std::make_unique<RelayedSpread>(*ground_);
    call.relay_ = call.spread_.get();
  }
  call.relay_->start(call.spec_, call.use_, call.result_use_);
}

void MpiEngine::post(MpiCall& call) {
  if (is_relayed(call.spec_)) return start_relay(call);
  const CallSpec& spec = call.spec_;
  const bool is_root = spec.root == rank();
  switch (spec.kind) {
    case CollectiveKind::kAllGather:
      for (int step = 1; step < world_size(); ++step) {
        receive_shard(call, (rank() - step + world_size()) % world_size());
      }
      send_shard(call);
      return spread_own(call);
    case CollectiveKind::kBroadcast:
      if (!is_root) return receive_shard(call, spec.root);
      send_shard(call);
      return spread_own(call);
    case CollectiveKind::kReduceScatter:
      reduce_own(call, spec.layout.segments(rank()), chunk_elements(spec));
      return send_pieces(call, kEveryOwner);
    case CollectiveKind::kReduce:
      if (!is_root) return send_pieces(call, spec.root);
      return reduce_own(call, spec.layout.segments(rank()), chunk_elements(spec));
    case CollectiveKind::kAllReduce:
      return post_all_reduce(call);
    case CollectiveKind::kBarrier:
      return post_barrier(call);
  }
}

/// This rank's shard to every peer, each starting with its successor.
void MpiEngine::send_shard(MpiCall& call) {
  const CallSpec& spec = call.spec_;
  for_each_message(spec.layout.segments(rank()), SegmentSide::kShard, spec.element_size(),
                   writable(spec.source), options_.limits, scratch_, [&](auto ranges) {
                     for (int step = 1; step < world_size(); ++step) {
                       const int peer = (rank() + step) % world_size();
                       call.sends_.add(transport_.send(peer, call.use_, ranges));
                     }
                   });
}

void MpiEngine::receive_shard(MpiCall& call, int owner) {
  const CallSpec& spec = call.spec_;
  for_each_message(spec.layout.segments(owner), SegmentSide::kFull, spec.element_size(),
                   spec.target, options_.limits, scratch_, [&](auto ranges) {
                     call.receives_.add(transport_.receive(owner, call.use_, ranges));
                   });
}

void MpiEngine::spread_own(MpiCall& call) {
  const CallSpec& spec = call.spec_;
  spread_segments(spec.layout.segments(rank()), spec.element_size(), spec.source, spec.target,
                  static_cast<std::size_t>(spec.count) * spec.element_size());
}

/// What peers (or only one) sum of this rank's buffer: first everybody's first chunk, and so on.
void MpiEngine::send_pieces(MpiCall& call, int only_owner) {
  const CallSpec& spec = call.spec_;
  const std::int64_t chunk = chunk_elements(spec);
  bool any = true;
  for (std::int64_t begin = 0; any; begin += chunk) {
    any = false;
    for (int step = 1; step < world_size(); ++step) {
      const int owner = (rank() + step) % world_size();
      if (only_owner != kEveryOwner && owner != only_owner) continue;
      const std::int64_t total =
          spec.kind == CollectiveKind::kAllReduce
              ? all_reduce_slice(spec.count, spec.dtype, world_size(), owner).size()
              : spec.layout.count(owner);
      if (begin >= total) continue;
      send_piece(call, owner, {begin, std::min(total, begin + chunk)});
      any = true;
    }
  }
}

/// `elements` are counted over those that `owner` sums.
void MpiEngine::send_piece(MpiCall& call, int owner, Range elements) {
  const CallSpec& spec = call.spec_;
  const std::size_t element = spec.element_size();
  std::byte* const source = writable(spec.source);
  if (spec.kind == CollectiveKind::kAllReduce) {
    const Range slice = all_reduce_slice(spec.count, spec.dtype, world_size(), owner);
    const Range part{slice.begin + elements.begin, slice.begin + elements.end};
    const ByteRange range{source + static_cast<std::size_t>(part.begin) * element,
                          static_cast<std::size_t>(part.size()) * element};
    call.sends_.add(transport_.send(owner, call.use_, {&range, 1}));
    call.slices_.push_back({owner, part});
    return;
  }
  scratch_.clear();
  Elements(spec.layout.segments(owner))
      .for_each_run(elements.begin, elements.end,
                    [&](std::int64_t full_offset, std::int64_t, std::int64_t count) {
                      scratch_.push_back({source + static_cast<std::size_t>(full_offset) * element,
                                          static_cast<std::size_t>(count) * element});
                    });
  call.sends_.add(transport_.send(owner, call.use_, scratch_));
}

void MpiEngine::post_all_reduce(MpiCall& call) {
  const CallSpec& spec = call.spec_;
  const std::size_t bytes = static_cast<std::size_t>(spec.count) * spec.element_size();
  if (world_size() == 2 && bytes > 0 && bytes <= options_.exchange) {
    call.whole_ = true;
    const Segment all{0, 0, spec.count};
    reduce_own(call, {&all, 1}, spec.count);
    const ByteRange range{spec.target, bytes};
    call.sends_.add(transport_.send(1 - rank(), call.use_, {&range, 1}));
    return;
  }
  const Range slice = all_reduce_slice(spec.count, spec.dtype, world_size(), rank());
  const Segment own{slice.begin, slice.begin, slice.size()};
  reduce_own(call, {&own, 1}, chunk_elements(spec));
  send_pieces(call, kEveryOwner);
}

void MpiEngine::reduce_own(MpiCall& call, std::span<const Segment> own, std::int64_t chunk) {
  call.use_.staged = true;
  call.reduction_.start(call.spec_, own, chunk, transport_, call.use_, pool_);
}

void MpiEngine::post_barrier(MpiCall& call) {
  const ByteRange nothing{nullptr, 0};
  for (int step = 1; step < world_size(); ++step) {
    const int from = (rank() - step + world_size()) % world_size();
    const int to = (rank() + step) % world_size();
    call.receives_.add(transport_.receive(from, call.use_, {&nothing, 1}));
    call.sends_.add(transport_.send(to, call.use_, {&nothing, 1}));
  }
}

}  // namespace shardbench::comm

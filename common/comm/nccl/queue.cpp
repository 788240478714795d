#include "common/comm/nccl/queue.h"

namespace shardbench::comm {
namespace {

NcclApi::Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return NcclApi::Op::kSum;
    case ReduceOp::kAverage:
      return NcclApi::Op::kAverage;
    case ReduceOp::kMax:
      return NcclApi::Op::kMax;
  }
  return NcclApi::Op::kSum;
}

/// The pieces of a call, each as a broadcast from or a reduction to its owner.
class PieceQueue {
 public:
  PieceQueue(const NcclQueue& queue, const CallSpec& spec, const std::byte* source,
             std::byte* target, bool packed)
      : queue_(queue), spec_(spec), source_(source), target_(target), packed_(packed) {}

  NcclCode run(const std::vector<NcclPiece>& pieces) {
    NcclCode code = queue_.api.group_start();
    for (const NcclPiece& piece : pieces) {
      if (!is_accepted(code)) break;
      code = spreads(spec_.kind) ? broadcast(piece) : reduce(piece);
    }
    const NcclCode end = queue_.api.group_end();  // also after an error: groups must be closed
    return is_accepted(code) ? end : code;
  }

 private:
  NcclCode broadcast(const NcclPiece& piece) const {
    const bool owns = piece.owner == queue_.rank;
    return queue_.api.broadcast(owns ? source_ + bytes_of(spec_, piece.shard_offset) : nullptr,
                                target_ + bytes_of(spec_, piece.full_offset), count_of(piece),
                                spec_.dtype, piece.owner, queue_.comm, queue_.stream);
  }

  NcclCode reduce(const NcclPiece& piece) {
    std::byte* receive = nullptr;
    if (piece.owner == queue_.rank) {
      receive = target_ + bytes_of(spec_, packed_ ? packed_count_ : piece.shard_offset);
      packed_count_ += piece.count;
    }
    return queue_.api.reduce(source_ + bytes_of(spec_, piece.full_offset), receive, count_of(piece),
                             spec_.dtype, op_of(spec_.op), piece.owner, queue_.comm, queue_.stream);
  }

  static std::size_t count_of(const NcclPiece& piece) {
    return static_cast<std::size_t>(piece.count);
  }

  const NcclQueue& queue_;
  const CallSpec& spec_;
  const std::byte* source_;
  std::byte* target_;
  bool packed_;
  std::int64_t packed_count_ = 0;
};

}  // namespace

NcclCode queue_collective(const NcclQueue& queue, const CallSpec& spec, const NcclPlan& plan,
                          const std::byte* source, std::byte* target, bool packed) {
  if (spec.kind == CollectiveKind::kAllReduce) {
    if (spec.count == 0) return NcclCode::kSuccess;
    return queue.api.all_reduce(source, target, static_cast<std::size_t>(spec.count), spec.dtype,
                                op_of(spec.op), queue.comm, queue.stream);
  }
  if (spec.kind == CollectiveKind::kBarrier) {
    return queue.api.all_reduce(source, target, 1, spec.dtype, NcclApi::Op::kSum, queue.comm,
                                queue.stream);
  }
  if (plan.pieces.empty()) return NcclCode::kSuccess;
  if (!plan.even) return PieceQueue(queue, spec, source, target, packed).run(plan.pieces);
  const NcclPiece& own = plan.pieces[static_cast<std::size_t>(queue.rank)];
  const std::size_t full = bytes_of(spec, plan.pieces.front().full_offset);
  const std::size_t shard = packed ? 0 : bytes_of(spec, own.shard_offset);
  const auto count = static_cast<std::size_t>(own.count);
  if (spreads(spec.kind)) {
    return queue.api.all_gather(source + shard, target + full, count, spec.dtype, queue.comm,
                                queue.stream);
  }
  return queue.api.reduce_scatter(source + full, target + shard, count, spec.dtype, op_of(spec.op),
                                  queue.comm, queue.stream);
}

}  // namespace shardbench::comm

#include "common/train/initial_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/memory/category.h"
#include "common/modules/init.h"

namespace shardbench::train {

namespace {

std::size_t bytes_of(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

void draw(const Model& model, const sharding::FlatLayout& layout, std::uint64_t seed,
          float* memory) {
  for (const sharding::FlatGroup& group : layout.groups) {
    for (const sharding::Piece& piece : group.pieces) {
      initialize(*model.parameters()[piece.parameter], seed, piece.begin, piece.count,
                 memory + piece.offset);
    }
  }
}

/// Gives every rank the `count` elements that rank 0 has at `data`.
void send_from_rank_0(comm::Communicator& comm, float* data, std::int64_t count, const char* label,
                      Phase phase) {
  std::vector<std::int64_t> counts(comm.world_size(), 0);
  counts[0] = count;
  const comm::Buffer buffer{data, count, DType::kFloat32};
  comm.broadcast(sharding::ShardLayout::contiguous(counts), /*root=*/0, buffer, buffer,
                 {label, phase})
      .wait();
}

/// Rank 0 makes the parameters [begin, end) one after the other and sends them; every rank keeps
/// its pieces of them.
void broadcast_parameters(const Model& model, const sharding::FlatLayout& layout, std::size_t begin,
                          std::size_t end, const InitContext& context, float* full, float* memory) {
  std::int64_t count = 0;
  for (std::size_t p = begin; p < end; ++p) {
    const Parameter& parameter = *model.parameters()[p];
    if (context.comm->rank() == 0) {
      initialize(parameter, context.seed, 0, parameter.numel(), full + count);
    }
    count += parameter.numel();
  }
  send_from_rank_0(*context.comm, full, count, "initial weights", Phase::kInit);
  const float* from = full;
  for (std::size_t p = begin; p < end; ++p) {
    if (const sharding::Piece* piece = layout.piece_of(static_cast<int>(p))) {
      std::memcpy(memory + piece->offset, from + piece->begin, bytes_of(piece->count));
    }
    from += model.parameters()[p]->numel();
  }
  context.comm->quiesce();  // `full` is written again, or goes
}

}  // namespace

void initialize_values(const Model& model, const sharding::FlatLayout& layout,
                       const InitContext& context, float* memory) {
  if (context.mode == InitMode::kDeferred) {
    draw(model, layout, context.seed, memory);
    return;
  }
  draw(model, layout, context.seed + static_cast<std::uint64_t>(context.comm->rank()), memory);
  const bool at_once = context.mode == InitMode::kBroadcast;
  std::int64_t room = 0;
  for (const Parameter* p : model.parameters()) {
    room = at_once ? room + p->numel() : std::max(room, p->numel());
  }
  comm::SymmetricMemory full;
  {
    const memory::CategoryScope scope(memory::Category::kCommBuffer);
    full = context.comm->symmetric_empty(bytes_of(room));
  }
  const std::size_t parameters = model.parameters().size();
  const std::size_t together = at_once ? std::max<std::size_t>(parameters, 1) : 1;
  for (std::size_t p = 0; p < parameters; p += together) {
    broadcast_parameters(model, layout, p, std::min(p + together, parameters), context,
                         static_cast<float*>(full.data()), memory);
  }
  share_buffers(model, *context.comm, Phase::kInit);
}

void share_buffers(const Model& model, comm::Communicator& comm, Phase phase) {
  std::int64_t count = 0;
  for (const ModuleBuffer* buffer : model.buffers()) count += buffer->tensor.numel();
  if (count == 0 || comm.world_size() == 1) return;
  std::vector<float> packed(static_cast<std::size_t>(count));
  float* at = packed.data();
  for (const ModuleBuffer* buffer : model.buffers()) {
    std::memcpy(at, buffer->tensor.const_data_ptr<float>(), bytes_of(buffer->tensor.numel()));
    at += buffer->tensor.numel();
  }
  send_from_rank_0(comm, packed.data(), count, "buffers", phase);
  at = packed.data();
  for (const ModuleBuffer* buffer : model.buffers()) {
    std::memcpy(buffer->tensor.data_ptr<float>(), at, bytes_of(buffer->tensor.numel()));
    at += buffer->tensor.numel();
  }
  comm.quiesce();
}

}  // namespace shardbench::train

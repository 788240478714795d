#include "common/train/initial_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/memory/category.h"
#include "common/modules/flat_memory.h"
#include "common/modules/init.h"

namespace shardbench::train {

namespace {

std::size_t bytes_of(std::int64_t elements) {
  return static_cast<std::size_t>(elements) * sizeof(float);
}

/// Draws on the host: into the memory itself, or, for a device, into a block beside it.
void draw_into(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
               std::int64_t count, float* to, at::Device device) {
  if (device.is_cpu()) return initialize(parameter, seed, begin, count, to);
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  std::vector<float> drawn(static_cast<std::size_t>(std::min(count, kBlock)));
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t block = std::min(count - done, kBlock);
    initialize(parameter, seed, begin + done, block, drawn.data());
    flat::write(to + done, drawn.data(), block, device);
  }
}

void draw(const Model& model, const sharding::FlatLayout& layout, std::uint64_t seed,
          float* memory) {
  for (const sharding::FlatGroup& group : layout.groups) {
    for (const sharding::Piece& piece : group.pieces) {
      draw_into(*model.parameters()[piece.parameter], seed, piece.begin, piece.count,
                memory + piece.offset, model.device());
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
      draw_into(parameter, context.seed, 0, parameter.numel(), full + count, model.device());
    }
    count += parameter.numel();
  }
  send_from_rank_0(*context.comm, full, count, "initial weights", Phase::kInit);
  const float* from = full;
  for (std::size_t p = begin; p < end; ++p) {
    if (const sharding::Piece* piece = layout.piece_of(static_cast<int>(p))) {
      flat::copy(memory + piece->offset, from + piece->begin, piece->count, model.device());
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
  std::vector<float> memory(static_cast<std::size_t>(count));
  const at::Tensor packed = flat::view(memory.data(), {count}, DType::kFloat32, at::kCPU);
  std::int64_t at = 0;
  const auto next = [&](const at::Tensor& like) {
    const std::int64_t begin = std::exchange(at, at + like.numel());
    return packed.narrow(0, begin, like.numel()).view(like.sizes());
  };
  for (const ModuleBuffer* buffer : model.buffers()) next(buffer->tensor).copy_(buffer->tensor);
  send_from_rank_0(comm, memory.data(), count, "buffers", phase);
  at = 0;
  for (const ModuleBuffer* buffer : model.buffers()) {
    const at::Tensor target = buffer->tensor;
    target.copy_(next(target));
  }
  comm.quiesce();
}

}  // namespace shardbench::train

#include "common/train/given_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"
#include "common/train/digest.h"

namespace shardbench::train {

namespace {

bool has_given_values(const Model& model) {
  return std::any_of(model.parameters().begin(), model.parameters().end(),
                     [](const Parameter* p) { return p->given_values().defined(); });
}

std::int64_t digest_of(const at::Tensor& values) {
  if (!values.defined() || values.numel() == 0) return 0;
  const at::Tensor host = values.to(at::kCPU).contiguous();
  return static_cast<std::int64_t>(digest(host.const_data_ptr<float>(), 0, host.numel()));
}

}  // namespace

void check_given_values(const Model& model, comm::Communicator& comm) {
  if (!has_given_values(model) || comm.world_size() == 1) return;
  std::vector<std::int64_t> largest;  // d and ~d of every tensor: their maxima are max and ~min
  for (const Parameter* p : model.parameters()) largest.push_back(digest_of(p->given_values()));
  for (const ModuleBuffer* b : model.buffers()) largest.push_back(digest_of(b->tensor));
  const std::size_t count = largest.size();
  for (std::size_t i = 0; i < count; ++i) largest.push_back(~largest[i]);
  comm.all_reduce({largest.data(), static_cast<std::int64_t>(largest.size()), DType::kInt64},
                  comm::ReduceOp::kMax, {"given values", Phase::kMetrics})
      .wait();
  comm.quiesce();
  for (std::size_t i = 0; i < count; ++i) {
    if (largest[i] == ~largest[count + i]) continue;
    const std::size_t parameters = model.parameters().size();
    throw UserError::format(
        "the given values of {} differ between ranks: seed or load the same on every rank, or "
        "let rank 0's be broadcast (init broadcast-tensor)",
        i < parameters ? model.parameters()[i]->name() : model.buffers()[i - parameters]->name);
  }
}

void drop_given_values(const Model& model) {
  for (Parameter* p : model.parameters()) p->drop_given_values();
}

}  // namespace shardbench::train

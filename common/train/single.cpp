#include "common/train/single.h"

#include <ATen/ATen.h>

#include "common/memory/category.h"
#include "common/ops/dtype.h"
#include "common/train/conversion.h"

namespace shardbench::train {

bool Single::writes_narrow() const {
  return order_ == AccumulationOrder::kRanksFirst && options().reduce_dtype != DType::kFloat32;
}

at::Tensor Single::gradient_view(Parameter& parameter) {
  if (!writes_narrow()) return BucketedStrategy::gradient_view(parameter);
  const sharding::ModelShape& shape = model().shape();
  if (!narrow_.defined()) {
    narrow_layout_ = sharding::flatten(shape, sharding::keep_all(shape), options().reduce_dtype);
    const memory::CategoryScope scope(memory::Category::kGrad);
    narrow_ =
        at::zeros({narrow_layout_.extent},
                  at::dtype(ops::scalar_type(options().reduce_dtype)).device(model().device()));
  }
  const sharding::Piece* piece = narrow_layout_.piece_of(parameter.index());
  return narrow_.narrow(0, piece == nullptr ? 0 : piece->offset, parameter.numel())
      .view(parameter.dims());
}

void Single::reduce_the_rest() {
  for (const Parameter* p : model().parameters()) {
    if (!writes_narrow() || !p->requires_grad() || !p->gradient_started()) continue;
    const sharding::Piece* piece = narrow_layout_.piece_of(p->index());
    if (piece == nullptr) continue;
    const auto bytes = piece->offset * static_cast<std::int64_t>(size_of(options().reduce_dtype));
    widen_on_threads({static_cast<const std::byte*>(narrow_.const_data_ptr()) + bytes, piece->count,
                      options().reduce_dtype},
                     static_cast<float*>(gradient_memory().data) + gradient_offset(p->index()),
                     /*add=*/false, model().device());
  }
  BucketedStrategy::reduce_the_rest();
}

void register_single(Registry& registry) {
  registry.add({"single", "one process without communication (the reference; --world 1)",
                AccumulationOrder::kMicroBatchesFirst, sharding::FormulaKind::kSingle,
                [] { return std::make_unique<Single>(); }});
}

}  // namespace shardbench::train

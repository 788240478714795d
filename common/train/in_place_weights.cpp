#include "common/train/in_place_weights.h"

#include "common/memory/category.h"
#include "common/train/conversion.h"

namespace shardbench::train {

void InPlaceWeights::allocate(const Model& model, comm::Communicator& comm,
                              const std::vector<sharding::Range>& kept, DType dtype) {
  comm_ = &comm;
  dtype_ = dtype;
  whole_ = sharding::flatten(model.shape(), sharding::keep_all(model.shape()), dtype);
  own_ = sharding::flatten_in_whole(model.shape(), kept, dtype);
  const memory::CategoryScope scope(memory::Category::kParam);
  block_ = comm.shared_empty(static_cast<std::size_t>(whole_.extent) * size_of(dtype),
                             static_cast<std::size_t>(own_.elements) * size_of(dtype));
}

void* InPlaceWeights::of(int parameter) const {
  const sharding::Piece* piece = whole_.piece_of(parameter);
  const std::int64_t offset = piece == nullptr ? 0 : piece->offset;  // without elements: anywhere
  return static_cast<std::byte*>(block_.data()) +
         offset * static_cast<std::int64_t>(size_of(dtype_));
}

void InPlaceWeights::convert(const sharding::FlatLayout& layout, const float* masters) const {
  const auto element = static_cast<std::int64_t>(size_of(dtype_));
  for (const sharding::FlatGroup& group : own_.groups) {
    for (const sharding::Piece& piece : group.pieces) {
      const float* from = masters + layout.piece_of(piece.parameter)->offset;
      std::byte* to = static_cast<std::byte*>(block_.data()) + piece.offset * element;
      convert_on_threads({from, piece.count, DType::kFloat32}, {to, piece.count, dtype_}, at::kCPU);
    }
  }
}

void InPlaceWeights::publish() const {
  comm_->barrier({"weights written", Phase::kMetrics}).wait();
}

}  // namespace shardbench::train

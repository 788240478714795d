#include "common/optim/device_norm.h"

#include <ATen/ATen.h>

#include "common/modules/flat_memory.h"
#include "common/modules/parameter.h"
#include "common/ops/on_host.h"
#include "common/optim/device_kernels.h"

namespace shardbench::optim {

namespace {

/// Calls f for the gradient [rows, elements of a row] of every piece that is used and has elements.
template <typename F>
void for_gradients(std::span<const OwnedPiece> pieces, const std::vector<char>& used, F f) {
  for (const OwnedPiece& piece : pieces) {
    const Parameter& parameter = *piece.parameter;
    if (!used[static_cast<std::size_t>(parameter.index())] || piece.count == 0) continue;
    const std::int64_t row = parameter.row_elements();
    f(flat::view(piece.gradient, {piece.count / row, row}, DType::kFloat32, parameter.device()));
  }
}

}  // namespace

bool lie_on_host(std::span<const OwnedPiece> pieces) {
  return pieces.empty() || ops::on_host(pieces.front().parameter->device());
}

void add_squares_on_device(std::span<const OwnedPiece> pieces, const std::vector<char>& used,
                           ExactSum& sum) {
  std::vector<at::Tensor> sums;
  for_gradients(pieces, used, [&](const at::Tensor& gradient) {
    sums.push_back(on_device::sums_of_squares(gradient));
  });
  if (sums.empty()) return;
  const at::Tensor rows = at::cat(sums).to(at::kCPU);
  const double* terms = rows.const_data_ptr<double>();
  for (std::int64_t i = 0; i < rows.numel(); ++i) sum.add(terms[i]);
}

bool all_finite_on_device(const Owned& owned, const std::vector<char>& used) {
  std::vector<at::Tensor> flags;
  for_gradients(owned.pieces, used, [&](const at::Tensor& gradient) {
    flags.push_back(on_device::all_finite(gradient));
  });
  return flags.empty() || at::stack(flags).all().item<bool>();
}

}  // namespace shardbench::optim

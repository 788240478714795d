#include "common/modules/layers/pool.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "common/modules/autograd.h"
#include "common/modules/layers/support.h"

namespace shardbench::functional {

namespace {

using Tensors = std::vector<at::Tensor>;

}  // namespace

at::Tensor max_pool(const at::Tensor& x, const ops::PoolWindow& window) {
  const auto indices = std::make_shared<at::Tensor>();
  return run_op(
      {x}, {},
      [&] {
        ops::MaxPoolResult result = ops::max_pool(x, window);
        *indices = as_activation(std::move(result.indices));
        return as_activation(std::move(result.y));
      },
      [indices, sizes = x.sizes().vec(), window](const Tensors& grads,
                                                 const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::max_pool_backward(grads[0], *indices, sizes, window)};
      });
}

at::Tensor avg_pool(const at::Tensor& x, const ops::PoolWindow& window) {
  return run_op(
      {x}, {}, [&] { return as_activation(ops::avg_pool(x, window)); },
      [sizes = x.sizes().vec(), window](const Tensors& grads,
                                        const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::avg_pool_backward(grads[0], sizes, window)};
      });
}

at::Tensor global_avg_pool(const at::Tensor& x) {
  return run_op(
      {x}, {}, [&] { return as_activation(ops::global_avg_pool(x)); },
      [sizes = x.sizes().vec()](const Tensors& grads, const std::vector<bool>& needs) -> Tensors {
        if (!grads[0].defined() || !needs[0]) return {at::Tensor()};
        return {ops::global_avg_pool_backward(grads[0], sizes)};
      });
}

}  // namespace shardbench::functional

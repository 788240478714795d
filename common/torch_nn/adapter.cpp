#include "common/torch_nn/adapter.h"

#include <ATen/ATen.h>

#include "common/core/error.h"
#include "common/torch_nn/tree.h"

namespace shardbench::torch_nn {

namespace detail {

void refuse_inputs(std::size_t count) {
  throw UserError::format(
      "the module's forward does not map {} tensor(s) to one; give a function to adapt or "
      "call_unit",
      count);
}

}  // namespace detail

std::unique_ptr<Model> adapt(std::shared_ptr<torch::nn::Module> module, Forward forward,
                             const AdaptOptions& options) {
  if (module == nullptr) throw UserError("there is no module to adapt");
  return std::make_unique<Model>(
      options.name, std::make_unique<TorchRoot>(std::move(module), std::move(forward), options));
}

void give_back(Model& model, bool want_values) {
  auto* root = dynamic_cast<TorchRoot*>(&model.root());
  if (root == nullptr) throw UserError::format("model {} is not an adapted module", model.name());
  std::vector<at::Tensor> values(model.parameters().size());
  model.read_parameters([&](const Parameter& parameter, const at::Tensor& full) {
    if (want_values) values[static_cast<std::size_t>(parameter.index())] = full.clone();
  });
  root->release(values);
}

}  // namespace shardbench::torch_nn

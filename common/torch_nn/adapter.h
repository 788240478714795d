#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/modules/module.h"

namespace shardbench::torch_nn {

/// Trains an existing torch::nn::Module tree under any strategy. Its weights, initialised or loaded
/// as usual, are kept; the user names the units, and says in the forward where they are entered:
///
///     struct NetImpl : torch::nn::Module {
///       torch::Tensor forward(torch::Tensor x) {
///         x = shardbench::torch_nn::call(block0, x);  // was block0(x); without adapt the same
///         x = shardbench::torch_nn::call(block1, x);
///         return head(x);
///       } ...
///     };
///     Net net;
///     const auto model = shardbench::torch_nn::adapt(net, {.units = {"block0", "block1"}});
///     ... attach a strategy to *model, run (*model)(x), train ...
///     shardbench::torch_nn::give_back(*model);        // net has the trained weights
///
/// A child of a torch::nn::Sequential that takes and returns one tensor needs no call: naming it is
/// enough. What no named unit holds is the root unit.
struct AdaptOptions {
  std::vector<std::string> units = {};  ///< paths of submodules, as in named_modules(): "blocks.0"
  std::string name = "torch_nn";        ///< of the model, for messages
};

/// A module's forward over one or more tensors.
using Forward = std::function<at::Tensor(const Tensors& inputs)>;

namespace detail {

[[noreturn]] void refuse_inputs(std::size_t count);

/// The module behind a holder or a pointer.
template <typename M>
auto& module_of(const M& holder) {
  return const_cast<std::remove_cvref_t<decltype(*holder)>&>(*holder);
}

/// Calls module.forward with as many tensors as there are.
template <typename M>
at::Tensor apply(M& module, const Tensors& x) {
  if constexpr (requires {
                  { module.forward(x[0]) } -> std::convertible_to<at::Tensor>;
                }) {
    if (x.size() == 1) return module.forward(x[0]);
  }
  if constexpr (requires {
                  { module.forward(x[0], x[1]) } -> std::convertible_to<at::Tensor>;
                }) {
    if (x.size() == 2) return module.forward(x[0], x[1]);
  }
  if constexpr (requires {
                  { module.forward(x[0], x[1], x[2]) } -> std::convertible_to<at::Tensor>;
                }) {
    if (x.size() == 3) return module.forward(x[0], x[1], x[2]);
  }
  refuse_inputs(x.size());
}

}  // namespace detail

/// The tree as a Model; `forward` is what calling the model runs. For every parameter of the tree
/// there is one of the model with the same name (a tensor registered twice has the first name and
/// is shared), which starts from the present values; a frozen one stays frozen. From now on the
/// tree's tensors have memory only while their unit is unsharded; the old memory is let go when a
/// strategy is attached, and gradients go to the strategy: .grad is empty after backward. fp32
/// buffers (running statistics) become the model's buffers, others stay each rank's own.
///
/// The model keeps the tree alive. `--units`-like policies keep their meaning: `block` are the
/// named units, `whole` is one. Throws UserError, naming the place: a path that does not exist or
/// is named twice; a parameter or floating-point buffer that is not dense fp32 on the CPU; two
/// parameters that overlap in memory without being one tensor; a tree that is adapted already.
std::unique_ptr<Model> adapt(std::shared_ptr<torch::nn::Module> module, Forward forward,
                             const AdaptOptions& options);

/// The same for a module holder or shared_ptr whose forward takes one to three tensors and returns
/// one.
template <typename M>
std::unique_ptr<Model> adapt(const M& module, const AdaptOptions& options = {}) {
  auto& raw = detail::module_of(module);
  return adapt(
      raw.shared_from_this(), [&raw](const Tensors& x) { return detail::apply(raw, x); }, options);
}

/// Enters `module` as a unit if it is one of the model whose forward is running on this thread;
/// otherwise just runs `forward`.
at::Tensor call_unit(const torch::nn::Module& module, Tensors inputs, const Forward& forward);

/// Runs a submodule's forward, as the unit it was named (see above). All inputs that gradients go
/// through must be given here.
template <typename M, typename... Inputs>
requires(std::convertible_to<const Inputs&, at::Tensor>&&...) at::Tensor
    call(const M& module, const Inputs&... inputs) {
  auto& raw = detail::module_of(module);
  return call_unit(raw, {at::Tensor(inputs)...},
                   [&raw](const Tensors& x) { return detail::apply(raw, x); });
}

/// Ends the adaptation. The tree is as before, with tensors of its own that hold the trained
/// values; on a rank with `want_values` off they hold nothing and may not be used. Collective while
/// a strategy that shards is attached; the model can only be destroyed afterwards.
void give_back(Model& model, bool want_values = true);

}  // namespace shardbench::torch_nn

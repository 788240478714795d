#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/modules/module.h"
#include "common/optim/owned.h"
#include "common/sharding/flat.h"
#include "common/train/config.h"

namespace shardbench::train {

/// What a strategy works with; none of it is owned and all of it outlives the strategy.
struct StrategyContext {
  Model* model = nullptr;
  comm::Communicator* comm = nullptr;
  StrategyOptions options;
  std::uint64_t seed = 1;
  /// Called whenever the run enters a unit or leaves one for the unit around it; may be empty.
  std::function<void(Phase, std::string_view unit)> on_position;
};

/// A way to spread parameters, gradients and optimizer state over ranks: the hooks that modules
/// call, plus a life around them:
///
///   attach;  each step: begin_step, {begin_micro_batch, forward, backward} x K,
///   finish_gradients, optimizer over owned(), after_optimizer.
///
/// Gradients are averaged over ranks and summed over micro-batches (scale the loss by 1/K).
class Strategy : public Hooks {
 public:
  /// Gives every parameter its memory and initial value and takes the model's hooks.
  void attach(const StrategyContext& context);
  /// Forgets gradients of the last step.
  void begin_step();
  /// Micro-batch `index` of `count` starts.
  void begin_micro_batch(int index, int count);
  /// On return owned().pieces[].gradient are final on every rank, peers no longer read values, and
  /// used() says what was used on any rank.
  void finish_gradients();
  /// The owned values have changed: makes them what the next forward sees.
  void after_optimizer();

  /// Under optimizer_in_backward: takes final gradients of some of owned().pieces, each once per
  /// step; their `gradient` is valid during the call only, and null in owned().
  using TakeGradients =
      std::function<void(std::span<const OwnedPiece> pieces, const std::vector<char>& used)>;
  /// Where they go; set once, after attach. Throws UserError under strategies that keep them.
  virtual void on_final_gradients(TakeGradients take);

  /// What this rank's optimizer steps.
  virtual const Owned& owned() const = 0;
  /// Whether every rank owns all of every trainable parameter.
  virtual bool replicated() const = 0;
  /// Alignment padding inside param + grad memory of this rank, bytes.
  virtual std::int64_t padding_bytes() const = 0;

  /// By parameter index: whether a gradient was written since begin_step, on this rank, and after
  /// finish_gradients on any rank. The optimizer must leave the others alone.
  const std::vector<char>& used() const { return used_; }

  /// Marks the use and asks the strategy for the memory.
  at::Tensor gradient_target(Parameter& parameter) final;
  bool takes_rows(const Parameter& parameter) const final;
  /// Marks the use and hands the rows on.
  void add_gradient_rows(Parameter& parameter, const at::Tensor& indices,
                         const at::Tensor& grad) final;

 protected:
  virtual void allocate() = 0;  ///< memory and initial values
  virtual at::Tensor gradient_view(Parameter& parameter) = 0;
  /// Under sparse_embedding, in its place (see RowGradient::add). Throws UserError where a strategy
  /// takes whole gradients only.
  virtual void add_rows(Parameter& parameter, const at::Tensor& indices, const at::Tensor& grad);
  virtual void start_step() {}
  virtual void reduce_the_rest() = 0;  ///< see finish_gradients
  virtual void values_changed() {}     ///< see after_optimizer

  Model& model() const { return *context_.model; }
  comm::Communicator& comm() const { return *context_.comm; }
  const StrategyOptions& options() const { return context_.options; }
  std::uint64_t seed() const { return context_.seed; }
  int micro_batch() const { return micro_batch_; }
  bool last_micro_batch() const { return micro_batch_ + 1 == micro_batches_; }
  /// Fills flat memory (zeroed) with the initial values of its pieces, as options().init says.
  /// Collective.
  void fill_initial_values(const sharding::FlatLayout& layout, float* memory);
  /// Says where the run is: for memory peaks, error messages and call tags.
  void enter(Phase phase, const Unit& unit);
  comm::CallTag tag(std::string_view label) const { return {label, phase_}; }

 private:
  StrategyContext context_;
  std::vector<char> used_;
  int micro_batch_ = 0;
  int micro_batches_ = 1;
  Phase phase_ = Phase::kForward;
};

}  // namespace shardbench::train

#include "common/train/strategy.h"

#include "common/core/error.h"
#include "common/memory/tracker.h"
#include "common/ops/on_host.h"
#include "common/train/given_values.h"
#include "common/train/initial_values.h"

namespace shardbench::train {

void Strategy::attach(const StrategyContext& context) {
  context_ = context;
  used_.assign(context_.model->parameters().size(), 0);
  validate_sparse_embedding(context_.options);
  if (context_.options.sparse_embedding && !ops::on_host(context_.model->device())) {
    throw UserError("sparse_embedding: rows are added up on the host; leave it off on a device");
  }
  context_.model->attach(*this, context_.options.units);
  for (Parameter* p : context_.model->parameters()) p->set_dtype(context_.options.compute_dtype);
  if (context_.options.init == InitMode::kDeferred) check_given_values(model(), comm());
  allocate();
  drop_given_values(model());
}

void Strategy::begin_step() {
  used_.assign(used_.size(), 0);
  for (Parameter* p : model().parameters()) {
    p->reset_gradient();
    p->forget_uses();
  }
  start_step();
}

void Strategy::begin_micro_batch(int index, int count) {
  for (Parameter* p : model().parameters()) p->forget_uses();  // of graphs that were dropped
  micro_batch_ = index;
  micro_batches_ = count;
  phase_ = Phase::kForward;
}

void Strategy::finish_gradients() {
  reduce_the_rest();
  std::vector<std::int64_t> flags(used_.begin(), used_.end());
  comm()
      .all_reduce({flags.data(), static_cast<std::int64_t>(flags.size()), DType::kInt64},
                  comm::ReduceOp::kMax, {"used parameters", Phase::kMetrics})
      .wait();
  used_.assign(flags.begin(), flags.end());
  comm().quiesce();
}

void Strategy::after_optimizer() {
  phase_ = Phase::kOptimizer;
  values_changed();
  for (Parameter* p : model().parameters()) p->values_changed();
}

void Strategy::on_final_gradients(TakeGradients) {
  throw UserError(
      "optimizer_in_backward: this strategy keeps every gradient until the step; take zero2, zero3 "
      "or fsdp");
}

at::Tensor Strategy::gradient_target(Parameter& parameter) {
  SHARDBENCH_CHECK(!takes_rows(parameter),
                   "the gradient of {} is kept as rows: only an Embedding "
                   "may write it",
                   parameter.name());
  used_[parameter.index()] = 1;
  return gradient_view(parameter);
}

bool Strategy::takes_rows(const Parameter& parameter) const {
  return options().sparse_embedding &&
         model().shape().parameters[parameter.index()].has_row_gradient();
}

void Strategy::add_gradient_rows(Parameter& parameter, const at::Tensor& indices,
                                 const at::Tensor& grad) {
  used_[parameter.index()] = 1;
  add_rows(parameter, indices, grad);
}

void Strategy::add_rows(Parameter&, const at::Tensor&, const at::Tensor&) {
  throw UserError("sparse_embedding: this strategy takes whole gradients only; leave it off");
}

void Strategy::enter(Phase phase, const Unit& unit) {
  phase_ = phase;
  memory::tracker().set_position(phase, unit.name);
  if (context_.on_position) context_.on_position(phase, unit.name);
}

void Strategy::fill_initial_values(const sharding::FlatLayout& layout, float* memory) {
  phase_ = Phase::kInit;
  initialize_values(model(), layout, {options().init, seed(), &comm()}, memory);
}

}  // namespace shardbench::train

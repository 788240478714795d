#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/comm/recorder.h"
#include "common/optim/exact_sum.h"
#include "common/optim/optimizer.h"
#include "common/train/feed.h"
#include "common/train/result.h"
#include "common/train/step_clock.h"
#include "common/train/strategy.h"

namespace shardbench::train {

/// The step loop of one rank, the same for every strategy. Nothing is owned but the optimizer.
class Trainer {
 public:
  struct Parts {
    Model* model = nullptr;
    Strategy* strategy = nullptr;  ///< attached
    comm::Recorder* comm = nullptr;
    const Feed* feed = nullptr;
    /// Told when the optimizer or the exchange of metrics starts; may be empty.
    std::function<void(Phase, std::string_view)> on_position;
    StepClock* clock = nullptr;  ///< null: the host's
  };
  Trainer(const RunConfig& config, const Parts& parts);

  /// One optimizer step (from 0) over all micro-batches; the recorder holds its calls afterwards.
  StepRecord step(std::int64_t index);
  /// Gives every rank rank 0's buffers (see ModuleBuffer).
  void share_buffers();
  /// Mean loss over the first `max_windows` held-out windows (0: all), each counted once.
  double evaluate(std::int64_t max_windows);

  const optim::Optimizer& optimizer() const { return *optimizer_; }
  /// By parameter index: digests of what this rank owns, first_gradient included.
  std::vector<ParameterDigest> digests() const;
  /// By parameter index: used on any rank in any step so far.
  const std::vector<char>& ever_used() const { return ever_used_; }

 private:
  void micro_batch(std::int64_t index, int micro, double loss_scale);
  double read_losses();
  double mean_over_ranks(double loss);
  void position(Phase phase);
  void fence(std::string_view label);
  void digest_gradients(std::span<const OwnedPiece> pieces);
  double unscaled_norm(double loss_scale) const;
  void take(std::span<const OwnedPiece> pieces, const std::vector<char>& used);

  RunConfig config_;
  Parts parts_;
  std::unique_ptr<StepClock> own_clock_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<at::Tensor> losses_;  ///< of the step's micro-batches, not read yet
  LossScaler scaler_;
  std::vector<char> ever_used_;
  bool digested_ = false;  ///< first_gradients_ are there
  std::vector<std::uint64_t> first_gradients_;
  // With the optimizer in backward, of the step that runs:
  optim::ExactSum squares_;
  std::int64_t noting_ns_ = 0;  ///< of backward, for what is only shown: norms and digests
  std::int64_t taking_ns_ = 0;  ///< of backward, in the optimizer
};

/// Time in which the calls (metrics left out) communicated. With an emulated link: from issue to
/// completion; else while a thread of their own moved bytes or the caller stood in their waits.
/// 0 where calls have no such thread: all is exposed then.
std::int64_t communication_ns(const std::vector<comm::CallRecord>& calls, bool emulated_link);

/// Digest of each parameter's whole value where the parameters are usable, else nothing.
std::vector<std::uint64_t> digest_whole(const Model& model);
/// Digest of each buffer.
std::vector<std::uint64_t> digest_buffers(const Model& model);

/// Digests of owned values and moments, by parameter index.
std::vector<ParameterDigest> digest_owned(const Owned& owned, const optim::Optimizer& optimizer,
                                          std::size_t parameters);

}  // namespace shardbench::train

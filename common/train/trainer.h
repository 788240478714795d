#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/comm/recorder.h"
#include "common/optim/optimizer.h"
#include "common/train/feed.h"
#include "common/train/result.h"
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
  };
  Trainer(const RunConfig& config, const Parts& parts);

  /// One optimizer step (from 0) over all micro-batches; the recorder holds its calls afterwards.
  StepRecord step(std::int64_t index);
  /// Gives every rank rank 0's buffers (see ModuleBuffer).
  void share_buffers();
  /// Mean loss over the first `max_windows` held-out windows (0: all), each counted once.
  double evaluate(std::int64_t max_windows);

  const optim::Optimizer& optimizer() const { return *optimizer_; }
  /// By parameter index: digests of what this rank owns, first_gradient of step 0 included.
  std::vector<ParameterDigest> digests() const;
  /// By parameter index: used on any rank in any step so far.
  const std::vector<char>& ever_used() const { return ever_used_; }

 private:
  double micro_batch(std::int64_t index, int micro, StepRecord& record);
  double mean_over_ranks(double loss);
  void position(Phase phase);
  void fence(std::string_view label);
  void digest_gradients();

  RunConfig config_;
  Parts parts_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<char> ever_used_;
  std::vector<std::uint64_t> first_gradients_;
};

/// Time during which at least one of the calls (metrics left out) was under way.
std::int64_t union_ns(const std::vector<comm::CallRecord>& calls);

/// Digest of each parameter's whole value where the parameters are usable, else nothing.
std::vector<std::uint64_t> digest_whole(const Model& model);
/// Digest of each buffer.
std::vector<std::uint64_t> digest_buffers(const Model& model);

/// Digests of owned values and moments, by parameter index.
std::vector<ParameterDigest> digest_owned(const Owned& owned, const optim::Optimizer& optimizer,
                                          std::size_t parameters);

}  // namespace shardbench::train

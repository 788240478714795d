#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/call_spec.h"
#include "common/comm/mpi/reduction.h"
#include "common/comm/mpi/relay.h"
#include "common/comm/mpi/transport.h"

namespace shardbench::comm {

class MpiEngine;

/// One call of one rank, until all its messages are through. Its state is read and written with
/// the runtime's mutex held.
class MpiCall : public Work::State {
 public:
  explicit MpiCall(std::shared_ptr<MpiEngine> engine) : engine_(std::move(engine)) {}

  void wait(Goal goal, Deadline deadline) override;
  bool wait_some(Goal goal, std::chrono::nanoseconds longest) override;
  bool reached(Goal goal) override;
  std::chrono::steady_clock::time_point last_arrival() const override;
  void poll() override;
  WorkTiming timing() const override;

 private:
  friend class MpiEngine;

  /// Elements of an all_reduce that `peer` sums and sends back.
  struct Slice {
    int peer = 0;
    sharding::Range elements;
  };

  /// Becomes a new call; what it has allocated is used again.
  void begin(CallSpec spec, std::int64_t sequence);
  /// Whether everything that this rank needs from peers is there and summed.
  bool has_input() const {
    if (relay_ != nullptr) return relay_->has_output();
    return reduction_.done() && slices_asked_ == slices_.size() && receives_.done();
  }

  std::shared_ptr<MpiEngine> engine_;
  CallSpec spec_;
  std::int64_t sequence_ = 0;
  MessageUse use_;         ///< what ranks put in
  MessageUse result_use_;  ///< what an all_reduce has summed
  Messages sends_;
  Messages receives_;          ///< straight to their places
  Reduction reduction_;        ///< of nothing where this rank sums nothing
  std::vector<Slice> slices_;  ///< beside the first messages of sends_: what they are part of
  std::size_t slices_asked_ = 0;
  std::unique_ptr<RelayedSpread> spread_;
  std::unique_ptr<RelayedSum> sum_;
  Relay* relay_ = nullptr;  ///< one of these two, in place of all above
  bool whole_ = false;      ///< an all_reduce that both of two ranks sum
  bool complete_ = false;   ///< own output is there
  bool arrived_ = false;    ///< had all messages that it needs
  bool released_ = false;   ///< and MPI is through with this rank's buffers
  std::chrono::steady_clock::time_point last_arrival_{};
  std::chrono::steady_clock::time_point changed_{};  ///< when a state above did last
  WorkTiming timing_;
};

}  // namespace shardbench::comm

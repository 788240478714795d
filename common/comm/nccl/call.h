#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/call_spec.h"
#include "common/comm/nccl/gpu_library.h"
#include "common/comm/nccl/mirror.h"
#include "common/comm/nccl/plan.h"

namespace shardbench::comm {

class NcclEngine;

/// One call of one rank, from issue until its event has passed.
class NcclCall : public Work::State {
 public:
  using Clock = std::chrono::steady_clock;

  NcclCall(std::shared_ptr<NcclEngine> engine, CallSpec spec, std::int64_t sequence);

  void wait(Goal goal, Deadline deadline) override;
  bool reached(Goal goal) override;  ///< the same for every goal: NCCL tells no more
  Clock::time_point last_arrival() const override { return completed_; }
  void poll() override;
  WorkTiming timing() const override { return timing_; }

  /// "all_gather #12 'h.3' (phase forward)".
  std::string describe() const;

 private:
  friend class NcclEngine;

  std::shared_ptr<NcclEngine> engine_;
  CallSpec spec_;
  NcclPlan plan_;
  std::int64_t sequence_;
  GpuEvent event_ = nullptr;  ///< of the communication stream; null once complete
  bool complete_ = false;     ///< seen by the host, results in place
  std::optional<HostMirror> source_mirror_;
  std::optional<HostMirror> target_mirror_;
  Clock::time_point completed_{};
  WorkTiming timing_;
};

}  // namespace shardbench::comm

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "common/comm/call_spec.h"
#include "common/comm/communicator.h"
#include "common/comm/shm/stream.h"

namespace shardbench::comm {

class ShmEngine;

/// One call of one rank, from issue until every rank has finished it.
class ShmCall : public Work::State {
 public:
  ShmCall(std::shared_ptr<ShmEngine> engine, CallSpec spec, std::int64_t sequence)
      : engine_(std::move(engine)), spec_(std::move(spec)), sequence_(sequence) {}

  void wait(Goal goal, Deadline deadline) override;
  bool wait_some(Goal goal, std::chrono::nanoseconds longest) override;
  bool reached(Goal goal) override;
  std::chrono::steady_clock::time_point last_arrival() const override { return last_arrival_; }
  void poll() override;
  WorkTiming timing() const override { return timing_; }

  const CallSpec& spec() const { return spec_; }
  std::int64_t sequence() const { return sequence_; }

 private:
  friend class ShmEngine;
  bool at(Goal goal) const;

  std::shared_ptr<ShmEngine> engine_;
  CallSpec spec_;
  std::int64_t sequence_;
  std::uint64_t fingerprint_ = 0;
  SymmetricMemory staging_;         ///< stands for a small source that peers cannot reach
  std::unique_ptr<Stream> stream_;  ///< bytes that go through lanes; null: none, as far as known
  bool moved_ = false;
  bool finished_ = false;  ///< touches no peer's memory any more
  bool complete_ = false;  ///< own output is there
  bool closed_ = false;    ///< every rank has issued it; its slot is not read any more
  bool released_ = false;  ///< every rank has finished
  std::chrono::steady_clock::time_point last_arrival_{};
  WorkTiming timing_;
};

}  // namespace shardbench::comm

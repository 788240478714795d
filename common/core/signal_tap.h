#pragma once

#include <csignal>

#include <chrono>

#include "common/core/descriptor.h"

namespace shardbench {

/// While it lives, SIGINT, SIGTERM and SIGCHLD of this thread are read from a descriptor instead of
/// being delivered; then mask and handlers are as before. For a process that waits for children.
class SignalTap {
 public:
  SignalTap() : fd_(make()) {}
  ~SignalTap();
  SignalTap(const SignalTap&) = delete;
  SignalTap& operator=(const SignalTap&) = delete;

  /// Waits up to `limit` for a signal. Returns SIGINT or SIGTERM if one came, else 0.
  int wait(std::chrono::milliseconds limit);

  /// In a child: signals as they were before. A terminal's Ctrl-C reaches the whole process group
  /// and is the launcher's to handle.
  void restore_in_child() const;

 private:
  int make();

  sigset_t previous_{};
  struct sigaction child_action_ {};
  Descriptor fd_;
};

}  // namespace shardbench

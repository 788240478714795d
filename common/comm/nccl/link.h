#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// Owns one ncclComm_t, which may be aborted from another thread at any time. Thread-safe; holds
/// its lock only for calls that return at once (the communicator is non-blocking).
class NcclLink {
 public:
  explicit NcclLink(NcclApi& api) : api_(api) {}
  ~NcclLink() { abort(); }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  /// Begins to join; state() says when all ranks have.
  NcclCode start(int world_size, const std::string& id, int rank);
  /// Calls `issue` with the handle; after abort() only returns kInvalidUsage.
  NcclCode call(const std::function<NcclCode(NcclHandle)>& issue);
  /// kInProgress while the last call is still being brought on its way, or the first error.
  NcclCode state();
  std::string describe(NcclCode code);
  /// Makes everything queued on the device end, at the price of the communicator.
  void abort();
  /// The orderly end, after finalize has been called and state() says that it is through.
  NcclCode destroy();

 private:
  NcclApi& api_;
  std::mutex mutex_;
  NcclHandle comm_ = nullptr;
};

}  // namespace shardbench::comm

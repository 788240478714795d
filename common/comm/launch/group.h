#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/job.h"

namespace shardbench::comm {

/// The processes of one job that a launcher (mpirun, torchrun, srun) started, seen from one of
/// them: who takes part, which ranks share a machine, small texts between them, and one abort for
/// all. Used by one thread.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// hosts()[r] is the host of rank r; hosts are numbered in the order of their lowest ranks.
  virtual const std::vector<int>& hosts() const = 0;

  /// Blocks until every rank has brought a text, then gives all of them by rank. Collective.
  /// Throws JobAborted naming the ranks that are missing after the job's timeout.
  virtual std::vector<std::string> exchange(std::string_view text) = 0;

  /// All ranks. Its abort reaches every host.
  virtual std::shared_ptr<Job> job() const = 0;
  /// The ranks of this host, which share its segment; their numbers there count from 0 in order of
  /// rank. The same as job() where there is one host.
  virtual std::shared_ptr<Job> host_job() const = 0;
  /// This process's number in host_job().
  virtual int host_rank() const = 0;

  /// Ends the job on every rank.
  virtual void abort(const AbortRecord& record) noexcept = 0;
  /// Waits until rank 0's process has ended, at most `limit`: it is the one that says why.
  virtual void await_rank_0(std::chrono::milliseconds limit) = 0;
};

}  // namespace shardbench::comm

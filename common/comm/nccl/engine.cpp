#include "common/comm/nccl/engine.h"

#include <algorithm>

#include "common/comm/in_collective.h"
#include "common/comm/nccl/queue.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

CudaApi& using_device(CudaApi& cuda, int device) {
  check_cuda(cuda, cuda.set_device(device), "cudaSetDevice");
  return cuda;
}

}  // namespace

NcclEngine::NcclEngine(std::shared_ptr<Job> job, int rank, const NcclOptions& options)
    : job_(std::move(job)),
      rank_(rank),
      cuda_(using_device(*options.cuda, options.device)),
      nccl_(*options.nccl),
      hooks_(*options.hooks),
      device_(options.device),
      stream_(cuda_),
      copies_(cuda_),
      link_(nccl_) {}

NcclCall::NcclCall(std::shared_ptr<NcclEngine> engine, CallSpec spec, std::int64_t sequence)
    : engine_(std::move(engine)),
      spec_(std::move(spec)),
      plan_(plan_of(spec_, engine_->rank())),
      sequence_(sequence) {}

std::shared_ptr<NcclCall> NcclEngine::issue(CallSpec spec) {
  poll();
  const auto call =
      std::make_shared<NcclCall>(shared_from_this(), std::move(spec), next_sequence_++);
  const InCollective position(*job_, rank_, call->spec_.kind, call->sequence_);
  if (call->spec_.kind == CollectiveKind::kBarrier) {
    start_barrier(*call);
  } else {
    start(*call);
  }
  call->event_ = stream_.mark();
  const std::lock_guard lock(pending_mutex_);
  pending_.push_back(call);
  return call;
}

/// Queues all that the call does on the device.
void NcclEngine::start(NcclCall& call) {
  const CallSpec& spec = call.spec_;
  const NcclPlan& plan = call.plan_;
  const bool in_place = spec.kind == CollectiveKind::kAllReduce;
  std::byte* const target =
      on_device(spec.target, bytes_of(spec, plan.target_extent), call.target_mirror_);
  if (call.target_mirror_ && (in_place || spec.accumulate)) {
    call.target_mirror_->upload(copy_context());
  }
  const std::byte* source = target;
  if (!in_place) {
    source = on_device(const_cast<std::byte*>(spec.source), bytes_of(spec, plan.source_extent),
                       call.source_mirror_);
    if (call.source_mirror_) call.source_mirror_->upload(copy_context());
  }
  stream_.follow(hooks_.current_stream());
  if (!spec.accumulate || plan.own_count == 0) return submit(call, source, target, false);
  const ScratchMemory packed(hooks_, bytes_of(spec, plan.own_count), stream_.get());
  submit(call, source, packed.data(), true);
  add_own_pieces(call, packed.data(), target);
}

/// NCCL has no barrier: a reduction of one element that everybody must bring.
void NcclEngine::start_barrier(const NcclCall& call) {
  stream_.follow(hooks_.current_stream());
  const ScratchMemory flag(hooks_, 1, stream_.get());
  check_cuda(cuda_, cuda_.memset_async(flag.data(), 0, 1, stream_.get()), "cudaMemsetAsync");
  submit(call, flag.data(), flag.data(), false);
}

/// The memory that stands for a caller's buffer on the device: the buffer itself where it is device
/// memory, else a new mirror of it.
std::byte* NcclEngine::on_device(std::byte* data, std::size_t bytes,
                                 std::optional<HostMirror>& mirror) {
  if (bytes == 0) return data;
  bool is_device = false;
  check_cuda(cuda_, cuda_.is_device_memory(is_device, data), "cudaPointerGetAttributes");
  if (is_device) {
    hooks_.record_stream(data, stream_.get());
    return data;
  }
  await_results_in(data, bytes);
  mirror.emplace(copy_context(), data, bytes);
  return mirror->device();
}

/// Results of earlier calls come to host memory only when these are seen to be complete: before
/// this memory is read again.
void NcclEngine::await_results_in(const std::byte* data, std::size_t bytes) {
  std::shared_ptr<NcclCall> last;
  for (const std::shared_ptr<NcclCall>& call : pending_) {
    const std::byte* const target = call->spec_.target;
    const std::size_t extent = bytes_of(call->spec_, call->plan_.target_extent);
    if (call->target_mirror_ && target < data + bytes && data < target + extent) last = call;
  }
  if (last != nullptr) wait_on_host(*last, {});
}

void NcclEngine::submit(const NcclCall& call, const std::byte* source, std::byte* target,
                        bool packed) {
  const NcclCode code = link_.call([&](NcclHandle comm) {
    return queue_collective({nccl_, comm, stream_.get(), rank_, world_size()}, call.spec_,
                            call.plan_, source, target, packed);
  });
  if (code == NcclCode::kSuccess) return;
  if (code == NcclCode::kInProgress) {
    // Not on the stream yet: an event marked now would pass too early.
    return block([&] { return link_.state() != NcclCode::kInProgress; }, subject_of(call), {});
  }
  job_->check_alive();  // the communicator may have been aborted because the job was
  fail(record_of_error(subject_of(call), code));
}

/// target[own pieces] += packed.
void NcclEngine::add_own_pieces(const NcclCall& call, const std::byte* packed, std::byte* target) {
  const CallSpec& spec = call.spec_;
  for (const NcclPiece& piece : call.plan_.pieces) {
    if (piece.owner != rank_) continue;
    hooks_.add_into(target + bytes_of(spec, piece.shard_offset), packed, piece.count, spec.dtype,
                    stream_.get());
    packed += bytes_of(spec, piece.count);
  }
}

void NcclEngine::poll() {
  job_->check_alive();
  while (!pending_.empty() && stream_.passed(pending_.front()->event_)) {
    finish(*std::shared_ptr<NcclCall>(pending_.front()));
  }
}

/// The call, the oldest one, has completed on the device.
void NcclEngine::finish(NcclCall& call) {
  {
    const std::lock_guard lock(pending_mutex_);
    stream_.recycle(call.event_);
    call.event_ = nullptr;
    pending_.pop_front();
  }
  if (call.target_mirror_) {
    call.target_mirror_->download(copy_context(), result_ranges(call.spec_, call.plan_, rank_));
  }
  call.target_mirror_.reset();
  call.source_mirror_.reset();
  call.complete_ = true;
  call.completed_ = NcclCall::Clock::now();
  call.timing_.completed_ns = std::chrono::nanoseconds(call.completed_.time_since_epoch()).count();
}

CopyContext NcclEngine::copy_context() {
  return {cuda_, hooks_, copies_, [this](GpuEvent event) {
            const Subject subject{job_->position_of(rank_), "a copy between host and device"};
            block([&] { return copies_.passed(event); }, subject, {});
          }};
}

void NcclEngine::wait(NcclCall& call, Deadline deadline) {
  if (call.complete_) return;
  if (call.target_mirror_ || call.spec_.kind == CollectiveKind::kBarrier) {
    return wait_on_host(call, deadline);
  }
  if (shut_down_) throw JobAborted("a call was waited for after its communicator had been dropped");
  job_->check_alive();
  check_cuda(cuda_, cuda_.stream_wait_event(hooks_.current_stream(), call.event_),
             "cudaStreamWaitEvent");
}

void NcclEngine::quiesce() {
  poll();
  while (!pending_.empty()) wait_on_host(*std::shared_ptr<NcclCall>(pending_.front()), {});
}

void NcclEngine::shut_down(bool in_order) {
  watch_.reset();
  if (in_order && job_->aborted() == std::nullopt) {
    const Subject subject{job_->position_of(rank_), "the end of an NCCL communicator"};
    const NcclCode code = link_.call([&](NcclHandle comm) { return nccl_.finalize(comm); });
    if (is_accepted(code)) {
      block([&] { return link_.state() != NcclCode::kInProgress; }, subject, {});
      link_.destroy();
    }
  }
  link_.abort();
  shut_down_ = true;
  const std::lock_guard lock(pending_mutex_);
  pending_.clear();
}

}  // namespace shardbench::comm

#include <thread>

#include "common/comm/in_collective.h"
#include "common/comm/nccl/engine.h"
#include "common/comm/nccl/queue.h"
#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kYields = 1000;  // then sleep: what is awaited takes longer than a kernel's start
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kWatchInterval = std::chrono::milliseconds(20);

std::string id_to_text(const std::string& id) {
  std::string text;
  for (const char c : id) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string text_to_id(const std::string& text) {
  std::string id;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    id += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return id;
}

}  // namespace

void NcclEngine::join(const ExchangeTexts& exchange) {
  const Subject subject{job_->position_of(rank_), "setting up NCCL"};
  std::string id;
  NcclCode code = NcclCode::kSuccess;
  if (rank_ == 0) code = nccl_.unique_id(id);
  if (code != NcclCode::kSuccess) fail(record_of_error(subject, code));
  id = text_to_id(exchange(id_to_text(id)).front());
  code = link_.start(world_size(), id, rank_);
  if (!is_accepted(code)) fail(record_of_error(subject, code));
  block([&] { return link_.state() != NcclCode::kInProgress; }, subject, {});
  watch_.emplace(kWatchInterval, [this] { return look(); });
}

void NcclEngine::wait_on_host(NcclCall& call, Deadline deadline) {
  if (call.complete_) return;
  if (shut_down_) throw JobAborted("a call was waited for after its communicator had been dropped");
  const InCollective position(*job_, rank_, call.spec_.kind, call.sequence_);
  const Clock::time_point start = Clock::now();
  block(
      [&] {
        poll();
        return call.complete_;
      },
      subject_of(call), deadline);
  call.timing_.peer_wait_ns += std::chrono::nanoseconds(Clock::now() - start).count();
}

void NcclEngine::block(const std::function<bool()>& done, const Subject& subject,
                       Deadline deadline) {
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = deadline.value_or(start + job_->timeout());
  for (int turn = 0;; ++turn) {
    job_->check_alive();
    const NcclCode state = link_.state();
    if (!is_accepted(state)) {
      job_->check_alive();  // the watch may have aborted the communicator just now
      fail(record_of_error(subject, state));
    }
    if (done()) return;
    const Clock::time_point now = Clock::now();
    if (now >= end) fail(record_of_timeout(subject, now - start));
    if (turn < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

NcclEngine::Subject NcclEngine::subject_of(const NcclCall& call) const {
  const CallSpec& spec = call.spec_;
  Subject subject{job_->position_of(rank_), call.describe()};
  subject.record.phase = spec.phase;
  subject.record.unit = spec.label;
  subject.record.collective = name_of(spec.kind);
  subject.record.sequence = call.sequence_;
  return subject;
}

/// NCCL does not say who is missing, so the others' positions are listed; the record is about a
/// rank only where there is just one that it can be.
AbortRecord NcclEngine::record_of_timeout(const Subject& subject,
                                          std::chrono::nanoseconds waited) const {
  AbortRecord record = subject.record;
  record.reason = AbortRecord::Reason::kTimeout;
  std::vector<std::string> others;
  int suspects = 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank_) continue;
    others.push_back(describe_position(*job_, peer));
    const AbortRecord at = job_->position_of(peer);
    if (at.collective == record.collective && at.sequence == record.sequence) continue;
    record.rank = ++suspects == 1 ? peer : -1;
  }
  record.message = fmt::format("{}: rank {} waited {} for NCCL; {}", subject.text, rank_,
                               format_time_ns(waited.count()), shardbench::join(others, "; "));
  return record;
}

AbortRecord NcclEngine::record_of_error(const Subject& subject, NcclCode code) {
  AbortRecord record = subject.record;
  record.reason =
      code == NcclCode::kRemoteError ? AbortRecord::Reason::kLost : AbortRecord::Reason::kThrew;
  record.message =
      fmt::format("{}: NCCL of rank {} reports {}", subject.text, rank_, link_.describe(code));
  return record;
}

void NcclEngine::fail(const AbortRecord& record) {
  job_->abort(record);
  link_.abort();
  job_->check_alive();
  throw JobAborted(record.message);
}

void NcclEngine::abort(std::string_view message) {
  AbortRecord record = job_->position_of(rank_);
  record.reason = AbortRecord::Reason::kRequested;
  record.message = message;
  job_->abort(record);
  link_.abort();
}

/// The oldest call that has not completed on the device.
std::shared_ptr<NcclCall> NcclEngine::oldest_unfinished() {
  const std::lock_guard lock(pending_mutex_);
  for (const std::shared_ptr<NcclCall>& call : pending_) {
    if (!stream_.passed(call->event_)) return call;
  }
  return nullptr;
}

/// One look of the watch; false: nothing is left to watch. The device must not be left waiting for
/// peers that do not come: the rank's own thread may be blocked by it.
bool NcclEngine::look() {
  std::optional<AbortRecord> record;
  try {
    check_cuda(cuda_, cuda_.set_device(device_), "cudaSetDevice");
    const std::shared_ptr<NcclCall> oldest = oldest_unfinished();
    const std::int64_t sequence = oldest == nullptr ? -1 : oldest->sequence_;
    const Clock::time_point now = Clock::now();
    if (sequence != watched_sequence_) {
      watched_sequence_ = sequence;
      watched_since_ = now;
    }
    const Subject subject = oldest == nullptr ? Subject{job_->position_of(rank_), "between calls"}
                                              : subject_of(*oldest);
    const NcclCode state = link_.state();
    if (!is_accepted(state)) {
      record = record_of_error(subject, state);
    } else if (oldest != nullptr && now - watched_since_ >= job_->timeout()) {
      record = record_of_timeout(subject, now - watched_since_);
    }
  } catch (const std::exception& error) {
    record = job_->position_of(rank_);
    record->message = error.what();
  }
  if (record) job_->abort(*record);
  if (job_->aborted() == std::nullopt) return true;
  link_.abort();
  return false;
}

std::string NcclCall::describe() const {
  return fmt::format("{} #{} '{}' (phase {})", name_of(spec_.kind), sequence_, spec_.label,
                     name_of(spec_.phase));
}

void NcclCall::wait(Goal goal, Deadline deadline) {
  if (goal == Goal::kArrived) {
    engine_->wait_on_host(*this, deadline);
  } else {
    engine_->wait(*this, deadline);
  }
}
void NcclCall::poll() { engine_->poll(); }

bool NcclCall::reached(Goal) {
  if (!complete_) engine_->poll();
  return complete_;
}

}  // namespace shardbench::comm

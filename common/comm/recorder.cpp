#include "common/comm/recorder.h"

#include <algorithm>
#include <array>

#include "common/comm/call_shape.h"
#include "common/comm/link.h"

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;

class RecorderImpl : public Decorator<Recorder> {
 public:
  RecorderImpl(std::unique_ptr<Communicator> inner, std::shared_ptr<const WireMatrix> wire)
      : Decorator(std::move(inner)), wire_(std::move(wire)) {
    reset();
  }

  void reset() override {
    calls_.clear();
    works_.clear();
    if (wire_ == nullptr) return;
    for (int phase = 0; phase < kPhaseCount; ++phase) {
      for (int kind = 0; kind < kCollectiveKindCount; ++kind) {
        baseline_[index(phase, kind)] = present(phase, kind);
      }
    }
  }

  const std::vector<CallRecord>& calls() const override {
    refresh();
    return calls_;
  }

  std::vector<TrafficEntry> traffic() const override {
    std::array<TrafficEntry, kPhaseCount * kCollectiveKindCount> table{};
    for (const CallRecord& call : calls_) {
      TrafficEntry& entry = table[index(static_cast<int>(call.phase), static_cast<int>(call.kind))];
      entry.phase = call.phase;
      entry.kind = call.kind;
      ++entry.calls;
      entry.payload_bytes += call.payload_bytes;
      entry.algo_bytes += call.algo_bytes;
    }
    std::vector<TrafficEntry> entries;
    for (TrafficEntry& entry : table) {
      if (entry.calls == 0) continue;
      entry.wire = moved_since(static_cast<int>(entry.phase), static_cast<int>(entry.kind));
      entries.push_back(entry);
    }
    return entries;
  }

  std::int64_t peer_wait_ns() const override {
    refresh();
    std::int64_t sum = 0;
    for (const CallRecord& call : calls_) sum += call.peer_wait_ns;
    return sum;
  }

  std::int64_t move_ns() const override {
    refresh();
    std::int64_t sum = 0;
    for (const CallRecord& call : calls_) sum += call.move_ns;
    return sum;
  }

 protected:
  Work after_issue(const CallShape& shape, CallTag tag, Clock::time_point issued,
                   Work work) override {
    CallRecord record;
    record.sequence = next_sequence_++;
    record.kind = shape.kind;
    record.phase = tag.phase;
    record.label = tag.label;
    record.dtype = shape.dtype;
    record.payload_bytes = shape.payload_bytes;
    record.algo_bytes = algo_bytes(shape.kind, world_size(), rank(), shape.root,
                                   shape.payload_bytes, shape.part_bytes)
                            .sent;
    record.issued_ns = std::chrono::nanoseconds(issued.time_since_epoch()).count();
    calls_.push_back(std::move(record));
    works_.push_back(work);
    return work;
  }

 private:
  static constexpr std::size_t index(int phase, int kind) {
    return static_cast<std::size_t>(phase * kCollectiveKindCount + kind);
  }

  /// The calls keep their own times; they are read when somebody asks.
  void refresh() const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      CallRecord& call = calls_[i];
      if (!works_[i].valid()) {
        call.finished_ns = call.issued_ns;
        continue;
      }
      const WorkTiming timing = works_[i].state()->timing();
      call.peer_wait_ns = timing.peer_wait_ns;
      call.move_ns = timing.move_ns;
      call.finished_ns = std::max<std::int64_t>(timing.completed_ns, 0);
      call.background = timing.background;
      call.blocked = timing.blocked;
    }
  }

  WireBytes present(int phase, int kind) const {
    const auto p = static_cast<Phase>(phase);
    const auto k = static_cast<CollectiveKind>(kind);
    WireBytes bytes;
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer == rank()) continue;
      bytes.sent += wire_->bytes(k, p, rank(), peer);
      bytes.received += wire_->bytes(k, p, peer, rank());
    }
    bytes.staging = wire_->staging_bytes(k, p, rank());
    return bytes;
  }

  WireBytes moved_since(int phase, int kind) const {
    if (wire_ == nullptr) return {-1, -1, -1};
    const WireBytes now = present(phase, kind);
    const WireBytes& before = baseline_[index(phase, kind)];
    return {now.sent - before.sent, now.received - before.received, now.staging - before.staging};
  }

  std::shared_ptr<const WireMatrix> wire_;
  std::array<WireBytes, kPhaseCount * kCollectiveKindCount> baseline_{};
  std::int64_t next_sequence_ = 0;
  mutable std::vector<CallRecord> calls_;
  std::vector<Work> works_;  ///< beside calls_
};

}  // namespace

std::int64_t covered_ns(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.from_ns < b.from_ns; });
  std::int64_t total = 0;
  std::int64_t end = 0;
  for (const Span& span : spans) {
    total += std::max<std::int64_t>(0, span.to_ns - std::max(span.from_ns, end));
    end = std::max(end, span.to_ns);
  }
  return total;
}

std::unique_ptr<Recorder> record(std::unique_ptr<Communicator> inner,
                                 std::shared_ptr<const WireMatrix> wire) {
  return std::make_unique<RecorderImpl>(std::move(inner), std::move(wire));
}

}  // namespace shardbench::comm

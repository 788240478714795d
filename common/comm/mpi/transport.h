#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/comm/kind.h"
#include "common/comm/mpi/ranges.h"
#include "common/comm/mpi/runtime.h"
#include "common/comm/recorder.h"
#include "common/core/phase.h"

namespace shardbench::comm {

/// This rank's row and column, counted when a message is issued and when one has come.
class MessageCounts : public WireMatrix {
 public:
  MessageCounts(int rank, int world_size);

  std::int64_t bytes(CollectiveKind kind, Phase phase, int source, int destination) const override;
  std::int64_t staging_bytes(CollectiveKind kind, Phase phase, int rank) const override;

  void add_sent(CollectiveKind kind, Phase phase, int destination, std::size_t bytes);
  void add_received(CollectiveKind kind, Phase phase, int source, std::size_t bytes);
  void add_staging(CollectiveKind kind, Phase phase, std::size_t bytes);

 private:
  using Counter = std::atomic<std::int64_t>;
  std::size_t index(CollectiveKind kind, Phase phase, int peer) const;

  int rank_;
  int world_size_;
  std::vector<Counter> sent_;
  std::vector<Counter> received_;
  std::vector<Counter> staging_;
};

/// What a message belongs to: part of its tag, and where its bytes are counted.
struct MessageUse {
  int tag = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  Phase phase = Phase::kInit;
  std::size_t element_size = 1;
  bool staged = false;     ///< received into staging memory
  bool is_signal = false;  ///< carries no data of the call: not counted
};

/// A message under way.
struct Message {
  shardbench_mpi_request request = 0;
  int peer = 0;
  bool is_receive = false;
  bool is_through = false;
  std::size_t bytes = 0;
};

/// Messages of one communicator's own MPI communicator. Every call with the runtime's mutex held.
class MpiTransport {
 public:
  /// Collective over all processes.
  explicit MpiTransport(std::shared_ptr<MpiRuntime> runtime);
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  MpiRuntime& runtime() const { return *runtime_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  int max_tag() const { return max_tag_; }
  const std::shared_ptr<MessageCounts>& counts() const { return counts_; }

  Message send(int peer, const MessageUse& use, std::span<const ByteRange> ranges);
  Message receive(int peer, const MessageUse& use, std::span<const ByteRange> ranges);
  /// Whether it is through. Throws JobAborted when it failed or brought another number of bytes.
  bool test(Message& message, const MessageUse& use);
  /// The tag of the oldest message from `peer` that no call has asked for; -1: none.
  int unexpected_tag(int peer);
  void drop(Message& message);
  /// Does not close the MPI communicator: the job has failed.
  void abandon() { abandoned_ = true; }

 private:
  std::shared_ptr<MpiRuntime> runtime_;
  const shardbench_mpi_api& api_;
  shardbench_mpi_comm comm_ = 0;
  int rank_;
  int world_size_;
  int max_tag_ = 0;
  bool abandoned_ = false;
  std::shared_ptr<MessageCounts> counts_;
};

/// Messages in the order issued; their completion is looked at in that order too: one look at the
/// oldest moves all of them, and what a call does next needs all anyway.
class Messages {
 public:
  void add(const Message& message) { list_.push_back(message); }
  /// Tests from the oldest on. True when all are through.
  bool advance(MpiTransport& transport, const MessageUse& use) {
    return done() || test_pending(transport, use);
  }
  bool done() const { return through_ == list_.size(); }
  /// How many of the first ones are through.
  std::size_t through() const { return through_; }
  std::size_t size() const { return list_.size(); }
  /// Tests every one and notes the peers of those that are not through.
  void add_missing(MpiTransport& transport, const MessageUse& use, std::vector<bool>& peers);
  void clear();
  void drop(MpiTransport& transport);

 private:
  bool test_pending(MpiTransport& transport, const MessageUse& use);

  std::vector<Message> list_;
  std::size_t through_ = 0;
};

}  // namespace shardbench::comm

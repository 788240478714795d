#include "common/comm/mpi/transport.h"

#include "common/core/error.h"

namespace shardbench::comm {

MessageCounts::MessageCounts(int rank, int world_size)
    : rank_(rank),
      world_size_(world_size),
      sent_(static_cast<std::size_t>(kPhaseCount * kCollectiveKindCount * world_size)),
      received_(sent_.size()),
      staging_(sent_.size()) {}

std::size_t MessageCounts::index(CollectiveKind kind, Phase phase, int peer) const {
  const int row = static_cast<int>(phase) * kCollectiveKindCount + static_cast<int>(kind);
  return static_cast<std::size_t>(row * world_size_ + peer);
}

std::int64_t MessageCounts::bytes(CollectiveKind kind, Phase phase, int source,
                                  int destination) const {
  if (source == rank_) return sent_[index(kind, phase, destination)].load();
  if (destination == rank_) return received_[index(kind, phase, source)].load();
  return 0;
}

std::int64_t MessageCounts::staging_bytes(CollectiveKind kind, Phase phase, int rank) const {
  return staging_[index(kind, phase, rank)].load();
}

void MessageCounts::add_sent(CollectiveKind kind, Phase phase, int destination, std::size_t bytes) {
  sent_[index(kind, phase, destination)].fetch_add(static_cast<std::int64_t>(bytes),
                                                   std::memory_order_relaxed);
}

void MessageCounts::add_received(CollectiveKind kind, Phase phase, int source, std::size_t bytes) {
  received_[index(kind, phase, source)].fetch_add(static_cast<std::int64_t>(bytes),
                                                  std::memory_order_relaxed);
}

void MessageCounts::add_staging(CollectiveKind kind, Phase phase, std::size_t bytes) {
  staging_[index(kind, phase, rank_)].fetch_add(static_cast<std::int64_t>(bytes),
                                                std::memory_order_relaxed);
}

MpiTransport::MpiTransport(std::shared_ptr<MpiRuntime> runtime)
    : runtime_(std::move(runtime)),
      api_(runtime_->api()),
      rank_(runtime_->rank()),
      world_size_(runtime_->world_size()),
      counts_(std::make_shared<MessageCounts>(rank_, world_size_)) {
  const std::lock_guard lock(runtime_->mutex());
  runtime_->check(api_.comm_open(&comm_), "duplicating the communicator of all processes");
  runtime_->check(api_.comm_max_tag(comm_, &max_tag_), "asking for the largest tag");
}

MpiTransport::~MpiTransport() {
  if (abandoned_) return;
  const std::lock_guard lock(runtime_->mutex());
  api_.comm_close(comm_);
}

Message MpiTransport::send(int peer, const MessageUse& use, std::span<const ByteRange> ranges) {
  Message message{.peer = peer};
  for (const ByteRange& range : ranges) message.bytes += range.bytes;
  const auto count = static_cast<int>(ranges.size());
  const int code = api_.send(comm_, peer, use.tag, ranges.data(), count, &message.request);
  runtime_->check(code, "sending");
  if (!use.is_signal) counts_->add_sent(use.kind, use.phase, peer, message.bytes);
  return message;
}

Message MpiTransport::receive(int peer, const MessageUse& use, std::span<const ByteRange> ranges) {
  Message message{.peer = peer, .is_receive = true};
  for (const ByteRange& range : ranges) message.bytes += range.bytes;
  const auto count = static_cast<int>(ranges.size());
  const int code = api_.receive(comm_, peer, use.tag, ranges.data(), count, &message.request);
  runtime_->check(code, "receiving");
  return message;
}

bool MpiTransport::test(Message& message, const MessageUse& use) {
  if (message.is_through) return true;
  int complete = 0;
  std::uint64_t bytes = 0;
  const int code = api_.test(&message.request, &complete, message.is_receive ? &bytes : nullptr);
  if (code != 0) [[unlikely]] {
    runtime_->check(code,
                    fmt::format("a message of {} with rank {}", name_of(use.kind), message.peer));
  }
  message.is_through = complete != 0;
  if (!message.is_through || !message.is_receive) return message.is_through;
  if (bytes != message.bytes) [[unlikely]] {
    throw JobAborted(fmt::format(
        "order differs: rank {} sent {} bytes for {}, for which rank {} expects {}; all ranks must "
        "issue the same calls in the same order",
        message.peer, bytes, name_of(use.kind), rank_, message.bytes));
  }
  if (use.is_signal) return true;
  counts_->add_received(use.kind, use.phase, message.peer, bytes);
  if (use.staged) counts_->add_staging(use.kind, use.phase, bytes);
  return true;
}

int MpiTransport::unexpected_tag(int peer) {
  int found = 0;
  int tag = 0;
  std::uint64_t bytes = 0;
  runtime_->check(api_.probe(comm_, peer, &found, &tag, &bytes), "looking for messages");
  return found != 0 ? tag : -1;
}

void MpiTransport::drop(Message& message) {
  api_.drop(&message.request, message.is_receive ? 1 : 0);
}

bool Messages::test_pending(MpiTransport& transport, const MessageUse& use) {
  while (through_ < list_.size() && transport.test(list_[through_], use)) ++through_;
  return done();
}

void Messages::add_missing(MpiTransport& transport, const MessageUse& use,
                           std::vector<bool>& peers) {
  for (std::size_t i = through_; i < list_.size(); ++i) {
    if (!transport.test(list_[i], use)) peers[static_cast<std::size_t>(list_[i].peer)] = true;
  }
}

void Messages::clear() {
  list_.clear();
  through_ = 0;
}

void Messages::drop(MpiTransport& transport) {
  for (std::size_t i = through_; i < list_.size(); ++i) {
    if (!list_[i].is_through) transport.drop(list_[i]);
  }
  through_ = list_.size();
}

}  // namespace shardbench::comm

#include "common/comm/shm/peer_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "common/comm/copy.h"
#include "common/core/error.h"

namespace shardbench::comm {

PeerWindow::PeerWindow(SegmentJob& job, WireTag tag, int self, int peer, std::uint64_t offset,
                       std::size_t bytes, Access access)
    : job_(&job),
      tag_(tag),
      self_(self),
      peer_(peer),
      data_(job.segment().arena(peer) + offset),
      bytes_(bytes),
      access_(access) {
  SHARDBENCH_CHECK(peer != self);
  SHARDBENCH_CHECK_LE(offset + bytes, job.segment().arena_bytes());
  protect(access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE);
}

PeerWindow::PeerWindow(PeerWindow&& other) noexcept
    : job_(std::exchange(other.job_, nullptr)),
      tag_(other.tag_),
      self_(other.self_),
      peer_(other.peer_),
      data_(other.data_),
      bytes_(other.bytes_),
      access_(other.access_),
      read_bytes_(other.read_bytes_),
      written_bytes_(other.written_bytes_) {}

PeerWindow::~PeerWindow() {
  if (job_ == nullptr) return;
  protect(PROT_NONE);
  const SharedSegment& segment = job_->segment();
  if (read_bytes_ > 0) {
    segment.wire(tag_.kind, tag_.phase, peer_, self_)
        .fetch_add(read_bytes_, std::memory_order_relaxed);
  }
  if (written_bytes_ > 0) {
    segment.wire(tag_.kind, tag_.phase, self_, peer_)
        .fetch_add(written_bytes_, std::memory_order_relaxed);
  }
}

const std::byte* PeerWindow::read(std::size_t at, std::size_t bytes) {
  SHARDBENCH_CHECK_LE(at + bytes, bytes_);
  read_bytes_ += static_cast<std::int64_t>(bytes);
  return data_ + at;
}

std::byte* PeerWindow::write(std::size_t at, std::size_t bytes) {
  SHARDBENCH_CHECK(access_ == Access::kReadWrite);
  SHARDBENCH_CHECK_LE(at + bytes, bytes_);
  written_bytes_ += static_cast<std::int64_t>(bytes);
  return data_ + at;
}

void fetch_segments(const std::vector<sharding::Segment>& segments, std::size_t element,
                    PeerWindow& peer, std::byte* full, std::size_t payload_bytes) {
  for (const sharding::Segment& segment : segments) {
    const std::size_t bytes = static_cast<std::size_t>(segment.count) * element;
    if (bytes == 0) continue;
    copy_part(full + static_cast<std::size_t>(segment.full_offset) * element,
              peer.read(static_cast<std::size_t>(segment.shard_offset) * element, bytes), bytes,
              payload_bytes);
  }
}

void PeerWindow::protect(int protection) const {
  if (!job_->guarded() || bytes_ == 0) return;
  static const auto kPage = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(data_) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(data_) + bytes_;
  mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

}  // namespace shardbench::comm

#include <algorithm>

#include "common/comm/call_shape.h"
#include "common/comm/copy.h"
#include "common/comm/mpi/relay.h"
#include "common/comm/reduce.h"

namespace shardbench::comm {

using sharding::Range;

void RelayedSum::post(const CallSpec& spec) {
  const HostGrid& grid = ground_.grid;
  const std::size_t element = spec.element_size();
  for (Messages* messages : {&sums_, &forward_, &results_, &back_}) messages->clear();
  asked_ = summed_ = handed_on_ = 0;
  slice_ = all_reduce_slice(spec.count, spec.dtype, grid.per_host, grid.local);
  const std::int64_t multiple = slice_multiple(spec.dtype);
  const auto wanted = static_cast<std::int64_t>(ground_.options.relay_chunk / element);
  chunk_elements_ = std::max<std::int64_t>(1, wanted / multiple) * multiple;
  chunks_ = (slice_.size() + chunk_elements_ - 1) / chunk_elements_;
  if (grid.hosts > 1 && chunks_ > 0) {
    slot_bytes_ =
        static_cast<std::size_t>(std::min(slice_.size(), chunk_elements_) + multiple) * element;
    slots_ = pool_.take(static_cast<std::size_t>(std::min(chunks_, kSlots)) * slot_bytes_);
  }
  const auto bytes = static_cast<std::size_t>(spec.count) * element;
  const std::uint64_t offset = reachable(spec.target, bytes);
  if (is_staged()) {
    const std::size_t begin = static_cast<std::size_t>(slice_.begin) * element;
    const std::size_t end = static_cast<std::size_t>(slice_.end) * element;
    copy_part(staging(), spec.source, begin, bytes);
    copy_part(staging() + end, spec.source + end, bytes - end, bytes);
    count_staging(bytes - (end - begin));
  }
  for (int step = 1; step < grid.per_host; ++step) {
    const int other = (grid.local + step) % grid.per_host;
    neighbours_.expect_offer(other);
    neighbours_.offer(other, offset);
  }
  ask_for_sums();
}

Range RelayedSum::chunk_at(std::int64_t chunk) const {
  const std::int64_t begin = slice_.begin + chunk * chunk_elements_;
  return {begin, std::min(slice_.end, begin + chunk_elements_)};
}

ByteRange RelayedSum::bytes_of(const CallSpec& spec, std::int64_t chunk) const {
  const Range range = chunk_at(chunk);
  const std::size_t element = spec.element_size();
  return {spec.target + static_cast<std::size_t>(range.begin) * element,
          static_cast<std::size_t>(range.size()) * element};
}

std::byte* RelayedSum::slot(std::int64_t chunk) const {
  return static_cast<std::byte*>(slots_.data()) +
         static_cast<std::size_t>(chunk % kSlots) * slot_bytes_;
}

/// Whether the chunk that had the slot before has left it.
bool RelayedSum::slot_is_free(std::int64_t chunk) const {
  const std::int64_t before = chunk - kSlots;
  if (before < 0) return true;
  return is_last() ? summed_ > before : static_cast<std::int64_t>(forward_.through()) > before;
}

/// The host before sends its sums as they get ready.
void RelayedSum::ask_for_sums() {
  if (is_first()) return;
  for (; asked_ < chunks_ && slot_is_free(asked_); ++asked_) {
    const Range range = chunk_at(asked_);
    const ByteRange into{slot(asked_), static_cast<std::size_t>(range.size()) * use_.element_size};
    sums_.add(ground_.transport.receive(column_peer(-1), use_, {&into, 1}));
  }
}

bool RelayedSum::move(const CallSpec& spec) {
  for (;; ++summed_) {
    ask_for_sums();
    sums_.advance(ground_.transport, use_);
    if (summed_ == chunks_) break;
    if (is_first() ? !is_last() && !slot_is_free(summed_)
                   : static_cast<std::int64_t>(sums_.through()) <= summed_) {
      break;
    }
    sum(spec, summed_);
  }
  if (is_last()) return summed_ == chunks_;
  results_.advance(ground_.transport, result_use_);
  while (handed_on_ < static_cast<std::int64_t>(results_.through())) hand_on(spec, handed_on_++);
  return handed_on_ == chunks_;
}

/// Adds this host's part of a chunk to the sum of the hosts before: to be sent on, or on the last
/// host the result, which goes to all neighbours in the same pass.
void RelayedSum::sum(const CallSpec& spec, std::int64_t chunk) {
  const HostGrid& grid = ground_.grid;
  const Range range = chunk_at(chunk);
  const ByteRange own = bytes_of(spec, chunk);
  const auto access = is_last() ? PeerWindow::Access::kReadWrite : PeerWindow::Access::kRead;
  const std::size_t bytes = static_cast<std::size_t>(spec.count) * spec.element_size();
  const std::size_t at = static_cast<std::size_t>(range.begin) * spec.element_size();
  sources_.clear();
  targets_.clear();
  if (!is_first()) sources_.push_back(slot(chunk));
  for (int local = 0; local < grid.per_host; ++local) {
    if (local == grid.local) {
      sources_.push_back(own.data);
      targets_.push_back(own.data);
      continue;
    }
    PeerWindow& data = windows_.emplace_back(neighbours_.window(local, bytes, access));
    sources_.push_back(data.read(at, own.bytes));
    if (is_last()) targets_.push_back(data.write(at, own.bytes));
  }
  const ByteRange so_far{slot(chunk), own.bytes};
  const ReduceOp partial = spec.op == ReduceOp::kMax ? ReduceOp::kMax : ReduceOp::kSum;
  if (is_last()) {
    reduce_elements(spec.dtype, spec.op, sources_, targets_, range.size(), false,
                    static_cast<std::size_t>(grid.hosts * grid.per_host));
  } else {
    reduce_elements(spec.dtype, partial, sources_, {&so_far.data, 1}, range.size(), false);
  }
  windows_.clear();
  if (!is_last()) {
    forward_.add(ground_.transport.send(column_peer(1), use_, {&so_far, 1}));
    results_.add(ground_.transport.receive(column_peer(1), result_use_, {&own, 1}));
  } else if (!is_first()) {
    back_.add(ground_.transport.send(column_peer(-1), result_use_, {&own, 1}));
  }
}

/// A chunk of the result, to the neighbours and to the host before.
void RelayedSum::hand_on(const CallSpec& spec, std::int64_t chunk) {
  const HostGrid& grid = ground_.grid;
  const ByteRange own = bytes_of(spec, chunk);
  if (!is_first()) back_.add(ground_.transport.send(column_peer(-1), result_use_, {&own, 1}));
  const std::size_t bytes = static_cast<std::size_t>(spec.count) * spec.element_size();
  const std::size_t at = static_cast<std::size_t>(chunk_at(chunk).begin) * spec.element_size();
  for (int step = 1; step < grid.per_host; ++step) {
    PeerWindow data = neighbours_.window((grid.local + step) % grid.per_host, bytes,
                                         PeerWindow::Access::kReadWrite);
    copy_part(data.write(at, own.bytes), static_cast<const std::byte*>(own.data), own.bytes, bytes);
  }
}

void RelayedSum::advance_sent() {
  forward_.advance(ground_.transport, use_);
  back_.advance(ground_.transport, result_use_);
}

void RelayedSum::end_all() {
  for (int step = 1; step < ground_.grid.per_host; ++step) {
    neighbours_.end((ground_.grid.local + step) % ground_.grid.per_host);
  }
}

/// The slices of the neighbours, which they have written.
void RelayedSum::unstage(const CallSpec& spec) {
  const std::size_t element = spec.element_size();
  const auto bytes = static_cast<std::size_t>(spec.count) * element;
  const std::size_t begin = static_cast<std::size_t>(slice_.begin) * element;
  const std::size_t end = static_cast<std::size_t>(slice_.end) * element;
  copy_part(spec.target, staging(), begin, bytes);
  copy_part(spec.target + end, staging() + end, bytes - end, bytes);
  count_staging(bytes - (end - begin));
}

void RelayedSum::add_slow(std::vector<bool>& peers) {
  Relay::add_slow(peers);
  sums_.add_missing(ground_.transport, use_, peers);
  results_.add_missing(ground_.transport, result_use_, peers);
}

void RelayedSum::drop() {
  Relay::drop();
  for (Messages* messages : {&sums_, &forward_, &results_, &back_}) {
    messages->drop(ground_.transport);
  }
}

std::vector<SymmetricMemory> RelayedSum::take_memory() {
  std::vector<SymmetricMemory> memory = Relay::take_memory();
  memory.push_back(std::move(slots_));
  return memory;
}

}  // namespace shardbench::comm

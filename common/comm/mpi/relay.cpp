#include "common/comm/mpi/relay.h"

#include <chrono>
#include <utility>

namespace shardbench::comm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void Relay::start(const CallSpec& spec, const MessageUse& use, const MessageUse& result_use) {
  use_ = use;
  result_use_ = result_use;
  moved_ = has_output_ = false;
  neighbours_.begin(use, result_use);
  post(spec);
}

void Relay::advance(const CallSpec& spec) {
  neighbours_.advance();
  advance_sent();
  if (!moved_ && neighbours_.offered()) {
    const Clock::time_point before = Clock::now();
    moved_ = move(spec);
    if (moved_) end_all();
    moved_ns_ += std::chrono::nanoseconds(Clock::now() - before).count();
  }
  if (has_output_ || !moved_ || !neighbours_.ended()) return;
  if (is_staged()) {
    unstage(spec);
    staging_ = {};
  }
  has_output_ = true;
}

std::int64_t Relay::take_moved_ns() { return std::exchange(moved_ns_, 0); }

std::vector<SymmetricMemory> Relay::take_memory() {
  std::vector<SymmetricMemory> memory;
  memory.push_back(std::move(staging_));
  return memory;
}

std::uint64_t Relay::reachable(const std::byte* data, std::size_t bytes) {
  SymmetricHeap& heap = *ground_.heap;
  if (heap.contains(data, bytes)) return heap.offset_of(data);
  const memory::CategoryScope scope(memory::Category::kCommBuffer);
  staging_ = heap.allocate(bytes);
  return heap.offset_of(staging_.data());
}

void Relay::count_staging(std::size_t bytes) {
  ground_.transport.counts()->add_staging(use_.kind, use_.phase, bytes);
}

}  // namespace shardbench::comm

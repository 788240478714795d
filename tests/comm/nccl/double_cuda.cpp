// The double's devices: streams, events, memory.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

#include "tests/comm/elements.h"
#include "tests/comm/nccl/double_state.h"

namespace shardbench::comm {
namespace {

constexpr std::byte kNeverWritten{0xff};  // NaN in every float type
constexpr std::byte kFreed{0xdb};
constexpr std::size_t kAlignment = 64;

}  // namespace

NcclDouble::NcclDouble(int devices) : devices_(devices) {}

NcclDouble::~NcclDouble() {
  for (Stream* stream : streams_) delete stream;
  for (Event* event : events_) delete event;
  for (Comm* comm : comms_) delete comm;
}

std::size_t NcclDouble::live_objects() {
  const std::lock_guard lock(mutex_);
  std::size_t live = streams_.size() + events_.size() + comms_.size();
  for (const auto& [data, block] : blocks_) live += block->freed ? 0 : 1;
  return live;
}

std::vector<std::string> NcclDouble::misuse() {
  const std::lock_guard lock(mutex_);
  return misuse_;
}

void NcclDouble::launch(GpuStream stream, Task task) {
  const std::lock_guard lock(mutex_);
  enqueue(stream_of(stream), {.task = std::move(task)});
}

void NcclDouble::synchronize(GpuStream stream) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(30);
  while (Clock::now() < end) {
    {
      const std::lock_guard lock(mutex_);
      Stream& all = stream_of(stream);
      if (advance(all, all.queued)) return;
    }
    std::this_thread::yield();
  }
  throw std::runtime_error("a stream of the double is stuck");
}

NcclDouble::Stream& NcclDouble::stream_of(GpuStream stream) {
  if (stream != nullptr) {
    auto* const known = static_cast<Stream*>(stream);
    if (streams_.count(known) == 0) throw std::runtime_error("use of a stream that is gone");
    return *known;
  }
  std::unique_ptr<Stream>& own = default_streams_[std::this_thread::get_id()];
  if (own == nullptr) own = std::make_unique<Stream>();
  return *own;
}

void NcclDouble::enqueue(Stream& stream, Node node) {
  stream.nodes.push_back(std::move(node));
  ++stream.queued;
}

/// Executes the stream's nodes up to `position`, and what they wait for; false when it gets stuck.
bool NcclDouble::advance(Stream& stream, std::uint64_t position) {
  if (stream.executed >= position) return true;
  if (stream.advancing) return false;  // somebody further up needs it to be further
  stream.advancing = true;
  bool moving = true;
  while (moving && stream.executed < position) {
    const Node node = stream.nodes.front();
    const std::uint64_t before = stream.executed;
    moving = execute(stream, node);
    if (moving && stream.executed == before) {  // a collective takes its node off itself
      stream.nodes.pop_front();
      ++stream.executed;
    }
  }
  stream.advancing = false;
  return moving;
}

bool NcclDouble::execute(Stream& stream, const Node& node) {
  if (node.awaited != nullptr) return advance(*node.awaited, node.position);
  if (node.group != nullptr) return execute_group(stream, node);
  node.task();
  return true;
}

CudaCode NcclDouble::injected_cuda(const std::string& call) {
  auto& planned = cuda_failures_[call];
  CudaCode code = CudaCode::kSuccess;
  std::map<int, CudaCode> left;
  for (const auto& [n, failure] : planned) {
    if (n == 0) code = failure;
    if (n > 0) left[n - 1] = failure;
  }
  planned = left;
  return code;
}

void NcclDouble::fail_cuda(const std::string& call, int n, CudaCode code) {
  const std::lock_guard lock(mutex_);
  cuda_failures_[call][n] = code;
}

CudaCode NcclDouble::device_count(int& count) {
  count = devices_;
  return devices_ == 0 ? CudaCode::kNoDevice : CudaCode::kSuccess;
}

CudaCode NcclDouble::set_device(int device) {
  const std::lock_guard lock(mutex_);
  if (device < 0 || device >= devices_) note("set_device of a device that is not there");
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::stream_create(GpuStream& stream) {
  const std::lock_guard lock(mutex_);
  const CudaCode code = injected_cuda("stream_create");
  if (code == CudaCode::kSuccess) stream = *streams_.insert(new Stream).first;
  return code;
}

CudaCode NcclDouble::stream_destroy(GpuStream stream) {
  const std::lock_guard lock(mutex_);
  Stream& gone = stream_of(stream);
  advance(gone, gone.queued);  // as CUDA does: what is queued is still executed
  streams_.erase(&gone);
  retired_.emplace_back(&gone);  // others may wait for it
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::stream_wait_event(GpuStream stream, GpuEvent event) {
  const std::lock_guard lock(mutex_);
  auto& awaited = *static_cast<Event*>(event);
  if (events_.count(&awaited) == 0) note("stream_wait_event of an event that is gone");
  if (awaited.stream != nullptr) {
    enqueue(stream_of(stream), {.awaited = awaited.stream, .position = awaited.position});
  }
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::event_create(GpuEvent& event, bool timed) {
  const std::lock_guard lock(mutex_);
  event = *events_.insert(new Event{std::this_thread::get_id(), timed}).first;
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::event_destroy(GpuEvent event) {
  const std::lock_guard lock(mutex_);
  auto* const gone = static_cast<Event*>(event);
  if (events_.erase(gone) == 0) {
    note("event_destroy of an event that is gone");
    return CudaCode::kSuccess;
  }
  if (gone->stream != nullptr) advance(*gone->stream, gone->position);
  delete gone;
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::event_record(GpuEvent event, GpuStream stream) {
  const std::lock_guard lock(mutex_);
  const CudaCode code = injected_cuda("event_record");
  if (code != CudaCode::kSuccess) return code;
  auto& recorded = *static_cast<Event*>(event);
  Stream& on = stream_of(stream);
  recorded.stream = &on;
  if (recorded.timed) {
    enqueue(on, {.task = [this, &recorded] { recorded.passed_at = clock_; }});
  }
  recorded.position = on.queued;
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::event_query(GpuEvent event) {
  const std::lock_guard lock(mutex_);
  const CudaCode code = injected_cuda("event_query");
  if (code != CudaCode::kSuccess) return code;
  auto& asked = *static_cast<Event*>(event);
  if (events_.count(&asked) == 0) {
    note("event_query of an event that is gone");
    return CudaCode::kSuccess;
  }
  if (asked.stream == nullptr || asked.stream->executed >= asked.position) {
    return CudaCode::kSuccess;
  }
  // Another thread, such as the watch's, only looks: it must not change what is executed when.
  if (asked.owner != std::this_thread::get_id()) return CudaCode::kNotReady;
  return advance(*asked.stream, asked.position) ? CudaCode::kSuccess : CudaCode::kNotReady;
}

CudaCode NcclDouble::event_elapsed(float& ms, GpuEvent start, GpuEvent end) {
  const std::lock_guard lock(mutex_);
  const auto& first = *static_cast<Event*>(start);
  const auto& last = *static_cast<Event*>(end);
  if (!first.timed || !last.timed) note("event_elapsed of an event without time");
  ms = static_cast<float>(last.passed_at - first.passed_at);
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::malloc_async(void*& data, std::size_t bytes, GpuStream stream) {
  const std::lock_guard lock(mutex_);
  stream_of(stream);
  auto block = std::make_unique<Block>();
  block->bytes.assign(bytes + kAlignment, kNeverWritten);
  const auto address = reinterpret_cast<std::uintptr_t>(block->bytes.data());
  block->data = block->bytes.data() + (kAlignment - address % kAlignment) % kAlignment;
  block->size = bytes;
  data = block->data;
  blocks_[block->data] = std::move(block);
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::free_async(void* data, GpuStream stream) {
  const std::lock_guard lock(mutex_);
  Block* const block = block_of(data);
  if (block == nullptr || block->data != data || block->freed) {
    note("free_async of what is not a live block");
    return CudaCode::kSuccess;
  }
  block->freed = true;
  enqueue(stream_of(stream), {.task = [block] {
            block->poisoned = true;
            std::memset(block->data, static_cast<int>(kFreed), block->size);
          }});
  return CudaCode::kSuccess;
}

NcclDouble::Block* NcclDouble::block_of(const void* data) {
  const auto* const at = static_cast<const std::byte*>(data);
  auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return nullptr;
  Block& block = *std::prev(after)->second;
  return at < block.data + block.size ? &block : nullptr;
}

/// Notes what is wrong with a range that is about to be read or written.
void NcclDouble::check_range(const void* data, std::size_t bytes, bool must_be_device,
                             const std::string& who) {
  if (bytes == 0) return;
  const Block* const block = block_of(data);
  if (block == nullptr) {
    if (must_be_device) note(who + " was given memory of the host");
    return;
  }
  if (block->poisoned) note(who + " uses memory that has been freed");
  if (static_cast<const std::byte*>(data) + bytes > block->data + block->size) {
    note(who + " goes past the end of its block");
  }
}

CudaCode NcclDouble::memcpy_async(void* to, const void* from, std::size_t bytes, GpuStream stream) {
  const std::lock_guard lock(mutex_);
  enqueue(stream_of(stream), {.task = [this, to, from, bytes] {
            check_range(to, bytes, false, "memcpy_async");
            check_range(from, bytes, false, "memcpy_async");
            std::memmove(to, from, bytes);
          }});
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::memset_async(void* to, int byte, std::size_t bytes, GpuStream stream) {
  const std::lock_guard lock(mutex_);
  enqueue(stream_of(stream), {.task = [this, to, byte, bytes] {
            check_range(to, bytes, true, "memset_async");
            std::memset(to, byte, bytes);
          }});
  return CudaCode::kSuccess;
}

CudaCode NcclDouble::is_device_memory(bool& is_device, const void* data) {
  const std::lock_guard lock(mutex_);
  is_device = block_of(data) != nullptr;
  return CudaCode::kSuccess;
}

std::string NcclDouble::describe(CudaCode code) {
  return fmt::format("cuda error {}", static_cast<int>(code));
}

void NcclDouble::note_use(const void* data, GpuStream stream) {
  const std::lock_guard lock(mutex_);
  stream_of(stream);
  Block* const block = block_of(data);
  if (block == nullptr) {
    note("record_stream of memory of the host");
  } else {
    ++block->uses;
  }
}

int NcclDouble::uses(const void* data) {
  const std::lock_guard lock(mutex_);
  const Block* const block = block_of(data);
  return block == nullptr ? 0 : block->uses;
}

DoubleHooks::DoubleHooks(NcclDouble& gpus) : gpus_(gpus) { gpus_.stream_create(compute_); }
DoubleHooks::~DoubleHooks() { gpus_.stream_destroy(compute_); }

void* DoubleHooks::allocate(std::size_t bytes, GpuStream stream) {
  void* data = nullptr;
  gpus_.malloc_async(data, bytes, stream);
  return data;
}

void DoubleHooks::release(void* data, GpuStream stream) { gpus_.free_async(data, stream); }

void DoubleHooks::add_into(void* target, const void* source, std::int64_t count, DType dtype,
                           GpuStream stream) {
  gpus_.launch(stream, [=] {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i) * size_of(dtype);
      std::byte* const to = static_cast<std::byte*>(target) + at;
      const std::byte* const from = static_cast<const std::byte*>(source) + at;
      store_element(dtype, load_element(dtype, to) + load_element(dtype, from), to);
    }
  });
}

}  // namespace shardbench::comm

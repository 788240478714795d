#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/nccl/gpu_library.h"

namespace shardbench::comm {

/// A stand-in for CUDA devices and NCCL over host memory. Ranks are threads of one process.
///
/// Streams are in-order queues that nobody works off: what is queued is executed only when somebody
/// asks for it, through event_query() on the thread that made the event, or synchronize(), and then
/// only what that event depends on. So a stream that does not wait for an event really reads old
/// values, the same way in each run. A collective is executed when all ranks' streams have reached
/// theirs. Wrong use is noted in misuse().
///
/// Implements both tables and is shared by all ranks; thread-safe.
class NcclDouble : public CudaApi, public NcclApi {
 public:
  struct Stream;
  struct Event;
  struct Comm;
  using Task = std::function<void()>;

  explicit NcclDouble(int devices);
  ~NcclDouble() override;

  // What tests do beside the two tables.

  /// A kernel: runs in order on the stream.
  void launch(GpuStream stream, Task task);
  /// A kernel that takes so many milliseconds by the double's clock, and no time.
  void advance_clock(GpuStream stream, int ms) {
    launch(stream, [this, ms] { clock_ += ms; });
  }
  /// Blocks until the stream is through; throws std::runtime_error when it is stuck for seconds.
  void synchronize(GpuStream stream);
  /// The blocks, streams, ... that are alive now: 0 after an orderly end.
  std::size_t live_objects();
  /// What was done wrong, in order.
  std::vector<std::string> misuse();
  /// NCCL's calls of one rank, in order: "broadcast 3 fp32 root 0".
  std::vector<std::string> calls(int rank);
  /// The `n`th call from now on (0: the next) of this name, of any rank, gives `code`.
  void fail(const std::string& call, int n, NcclCode code);
  void fail_cuda(const std::string& call, int n, CudaCode code);
  /// What async_error says of this rank's communicators from now on.
  void set_async_error(int rank, NcclCode code);
  /// No collective is executed any more until its communicator is aborted.
  void hang();
  /// Each call is on its way for so many looks at async_error(), then on the stream.
  void set_launch_delay(int looks);
  void note_use(const void* data, GpuStream stream);
  /// How often note_use was called for the block that holds `data`.
  int uses(const void* data);

  CudaCode device_count(int& count) override;
  CudaCode set_device(int device) override;
  CudaCode stream_create(GpuStream& stream) override;
  CudaCode stream_destroy(GpuStream stream) override;
  CudaCode stream_wait_event(GpuStream stream, GpuEvent event) override;
  CudaCode event_create(GpuEvent& event, bool timed) override;
  CudaCode event_destroy(GpuEvent event) override;
  CudaCode event_record(GpuEvent event, GpuStream stream) override;
  CudaCode event_query(GpuEvent event) override;
  CudaCode event_elapsed(float& ms, GpuEvent start, GpuEvent end) override;
  CudaCode malloc_async(void*& data, std::size_t bytes, GpuStream stream) override;
  CudaCode free_async(void* data, GpuStream stream) override;
  CudaCode memcpy_async(void* to, const void* from, std::size_t bytes, GpuStream stream) override;
  CudaCode memset_async(void* to, int byte, std::size_t bytes, GpuStream stream) override;
  CudaCode is_device_memory(bool& is_device, const void* data) override;
  std::string describe(CudaCode code) override;

  NcclCode unique_id(std::string& id) override;
  NcclCode init_rank(NcclHandle& comm, int world_size, const std::string& id, int rank) override;
  NcclCode async_error(NcclHandle comm, NcclCode& state) override;
  NcclCode finalize(NcclHandle comm) override;
  NcclCode destroy(NcclHandle comm) override;
  NcclCode abort(NcclHandle comm) override;
  NcclCode group_start() override;
  NcclCode group_end() override;
  NcclCode all_gather(const void* send, void* receive, std::size_t count, DType dtype,
                      NcclHandle comm, GpuStream stream) override;
  NcclCode reduce_scatter(const void* send, void* receive, std::size_t count, DType dtype, Op op,
                          NcclHandle comm, GpuStream stream) override;
  NcclCode all_reduce(const void* send, void* receive, std::size_t count, DType dtype, Op op,
                      NcclHandle comm, GpuStream stream) override;
  NcclCode broadcast(const void* send, void* receive, std::size_t count, DType dtype, int root,
                     NcclHandle comm, GpuStream stream) override;
  NcclCode reduce(const void* send, void* receive, std::size_t count, DType dtype, Op op, int root,
                  NcclHandle comm, GpuStream stream) override;
  std::string describe(NcclCode code, NcclHandle comm) override;

 private:
  enum class Kind { kAllGather, kReduceScatter, kAllReduce, kBroadcast, kReduce };
  /// One NCCL call of one rank.
  struct Call {
    Kind kind;
    const void* send;
    void* receive;
    std::size_t count;
    DType dtype;
    Op op;
    int root;
    Comm* comm;
    Stream* stream;

    std::string text() const;
    bool reduces() const;
  };
  /// What one rank queues at once: a call, or a group of them.
  using Group = std::vector<Call>;
  struct Node {
    Task task{};                           ///< null for the other two
    Stream* awaited = nullptr;             ///< waits until this stream has executed ...
    std::uint64_t position = 0;            ///< ... so many nodes
    std::shared_ptr<const Group> group{};  ///< a collective, the `index`th of its communicator
    std::size_t index = 0;
  };
  struct World;
  struct Queued;
  struct Block {
    std::vector<std::byte> bytes;
    std::byte* data = nullptr;
    std::size_t size = 0;
    bool freed = false;     ///< the call was made
    bool poisoned = false;  ///< its stream has come to it
    int uses = 0;
  };

  // All of these run under the lock.
  Stream& stream_of(GpuStream stream);
  void enqueue(Stream& stream, Node node);
  bool advance(Stream& stream, std::uint64_t position);
  bool execute(Stream& stream, const Node& node);
  bool execute_group(Stream& stream, const Node& node);
  void run_group(const World& world, std::size_t index);
  void run_calls(const std::vector<const Call*>& calls);
  static void reduce_inputs(const Call& call, const std::vector<std::vector<std::byte>>& inputs,
                            std::size_t offset, std::byte* to);
  void note(std::string text) { misuse_.push_back(std::move(text)); }
  void check_range(const void* data, std::size_t bytes, bool must_be_device,
                   const std::string& who);
  Block* block_of(const void* data);
  NcclCode queue(Call call);
  NcclCode submit(Comm& comm, std::shared_ptr<const Group> group);
  void flush(Comm& comm);
  void remove(Comm& comm);
  bool is_alive(NcclHandle comm, const std::string& call);
  NcclCode injected(const std::string& call);
  CudaCode injected_cuda(const std::string& call);

  std::mutex mutex_;
  int devices_;
  std::map<std::thread::id, std::unique_ptr<Stream>> default_streams_;
  std::set<Stream*> streams_;
  std::vector<std::unique_ptr<Stream>> retired_;
  std::set<Event*> events_;
  std::set<Comm*> comms_;
  std::map<std::string, std::unique_ptr<World>> worlds_;
  std::map<const std::byte*, std::unique_ptr<Block>> blocks_;  ///< kept when freed, poisoned
  std::map<std::thread::id, std::vector<Call>> open_groups_;
  std::set<std::thread::id> in_group_;
  std::map<int, std::vector<std::string>> calls_;
  std::map<std::string, std::map<int, NcclCode>> failures_;
  std::map<std::string, std::map<int, CudaCode>> cuda_failures_;
  std::map<int, NcclCode> async_errors_;
  std::vector<std::string> misuse_;
  bool hanging_ = false;
  int launch_delay_ = 0;
  std::size_t next_id_ = 0;
  std::int64_t clock_ = 0;
};

/// Hooks of one rank over the double: a compute stream of its own, its allocator, its additions.
class DoubleHooks : public DeviceHooks {
 public:
  explicit DoubleHooks(NcclDouble& gpus);
  ~DoubleHooks() override;
  DoubleHooks(const DoubleHooks&) = delete;
  DoubleHooks& operator=(const DoubleHooks&) = delete;

  GpuStream current_stream() override { return compute_; }
  void record_stream(const void* data, GpuStream stream) override { gpus_.note_use(data, stream); }
  void* allocate(std::size_t bytes, GpuStream stream) override;
  void release(void* data, GpuStream stream) override;
  void add_into(void* target, const void* source, std::int64_t count, DType dtype,
                GpuStream stream) override;

 private:
  NcclDouble& gpus_;
  GpuStream compute_ = nullptr;
};

}  // namespace shardbench::comm

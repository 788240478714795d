#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/kind.h"
#include "common/core/dtype.h"
#include "common/core/phase.h"
#include "common/sharding/layout.h"

namespace shardbench::comm {

/// Sums start at rank 0's value and go on by rank; an average is that sum times float(1/W). Every
/// backend keeps this order, so strategies agree bit for bit. bf16 and fp16 accumulate in fp32.
enum class ReduceOp : std::uint8_t { kSum, kAverage, kMax };

/// Memory of the caller: never owned, must stay valid until the Work is released.
struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;  ///< elements
  DType dtype = DType::kFloat32;
};
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kFloat32;
  operator ConstBuffer() const { return {data, count, dtype}; }
};

/// What a call is for; appears in errors, the recorder and traces. `label` names the unit, bucket
/// or purpose; ranks that meet in one collective with different labels get an error with both.
struct CallTag {
  std::string_view label;
  Phase phase = Phase::kInit;
};

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// A collective that has been issued. Movable handle; an empty one is already done. Dropping an
/// unfinished Work waits for nothing: the communicator keeps it until every rank has finished.
class Work {
 public:
  class State;  ///< implemented by each backend

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  /// Blocks until this rank's output is complete. Throws JobAborted when the job is aborted or
  /// the deadline (default: the communicator's timeout) passes; the message names the label, the
  /// collective, its sequence number and the ranks that are missing.
  void wait(Deadline deadline = {});
  /// Blocks until, besides, no peer reads or writes this rank's buffers any more.
  void wait_released(Deadline deadline = {});
  /// Whether wait() would return at once. Never blocks; throws JobAborted when the job has ended.
  bool done() const;
  /// When the last rank issued the call (steady clock). Blocks until it has: wait() alone may
  /// return before (the root of a broadcast, the others of a reduce need no peer).
  std::chrono::steady_clock::time_point last_arrival() const;
  /// Null for an empty handle. For code that decorates a communicator.
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// From one instant to another, steady clock.
struct Span {
  std::int64_t from_ns = 0;
  std::int64_t to_ns = 0;
};

/// Where the time of one call went so far, on this rank.
struct WorkTiming {
  std::int64_t peer_wait_ns = 0;   ///< blocked in its waits while nothing was moved
  std::int64_t move_ns = 0;        ///< moving its bytes, in whichever call that happened
  std::int64_t completed_ns = -1;  ///< steady clock; -1: output not complete yet
  // Only where a thread of its own carries the call (see with_thread).
  Span background;            ///< when that thread moved its bytes
  std::vector<Span> blocked;  ///< when its caller stood in its waits; their sum is peer_wait_ns
};

class Work::State {
 public:
  enum class Goal {
    kComplete,  ///< this rank's output is there
    kReleased,  ///< and no peer touches its buffers any more
    kArrived,   ///< every rank has issued the call: last_arrival() is valid
  };
  virtual ~State() = default;
  /// Blocks until the goal is reached. Throws as Work::wait does.
  virtual void wait(Goal goal, Deadline deadline) = 0;
  /// Blocks for at most `longest`, which ends nothing when it passes, and leaves the core to others
  /// meanwhile. Returns whether the goal is reached. Throws JobAborted when the job has ended.
  virtual bool wait_some(Goal goal, std::chrono::nanoseconds longest);
  /// Whether wait() would return at once. Never blocks; throws JobAborted when the job has ended.
  virtual bool reached(Goal goal) = 0;
  virtual std::chrono::steady_clock::time_point last_arrival() const = 0;
  /// Helps this rank's pending calls along without blocking. Throws JobAborted.
  virtual void poll() = 0;
  virtual WorkTiming timing() const = 0;
};

/// A block of memory that peers reach directly. Owning, movable; freed when destroyed. Starts on
/// 64 bytes, contents undefined.
class SymmetricMemory {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void release(void* data) = 0;
  };
  SymmetricMemory() = default;
  SymmetricMemory(std::shared_ptr<Owner> owner, void* data, std::size_t bytes)
      : owner_(std::move(owner)), data_(data), bytes_(bytes) {}
  SymmetricMemory(SymmetricMemory&& other) noexcept { swap(other); }
  SymmetricMemory& operator=(SymmetricMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SymmetricMemory() {
    if (owner_ != nullptr) owner_->release(data_);
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(SymmetricMemory& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<Owner> owner_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A group of ranks that call the same collectives in the same order. One object per rank, used
/// by one thread. Every call returns at once; nothing has to be moved before Work::wait.
///
/// "full" buffers hold the whole payload, "shard" buffers this rank's part; a layout says which
/// elements each rank keeps and where they lie in both (all ranks pass equal layouts). Symmetric
/// buffers are reached directly, others through staging. In every call empty parts take part.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual std::string_view backend() const = 0;

  /// full[segments of r] = rank r's shard, for every r. Shard and full must not overlap unless
  /// this rank's part is the same memory.
  virtual Work all_gather(const sharding::ShardLayout& layout, ConstBuffer shard, Buffer full,
                          CallTag tag) = 0;
  /// shard = op over ranks of full[own segments]; with `accumulate`, shard += that. Without it the
  /// shard may be full[own segments] itself; so in reduce.
  virtual Work reduce_scatter(const sharding::ShardLayout& layout, ConstBuffer full, Buffer shard,
                              ReduceOp op, bool accumulate, CallTag tag) = 0;
  /// data = op over ranks of data, in place.
  virtual Work all_reduce(Buffer data, ReduceOp op, CallTag tag) = 0;
  /// On every rank: full[root's segments] = root's shard. `shard` is read on the root only.
  virtual Work broadcast(const sharding::ShardLayout& layout, int root, ConstBuffer shard,
                         Buffer full, CallTag tag) = 0;
  /// On the root: shard = op over ranks of full[root's segments]; with `accumulate`, shard += that.
  virtual Work reduce(const sharding::ShardLayout& layout, int root, ConstBuffer full, Buffer shard,
                      ReduceOp op, bool accumulate, CallTag tag) = 0;
  virtual Work barrier(CallTag tag) = 0;

  /// Memory of this rank that peers reach directly. Not collective: sizes may differ by rank.
  virtual SymmetricMemory symmetric_empty(std::size_t bytes) = 0;

  /// Collective. One block that all ranks read and write in place, each at its own address;
  /// `own_bytes` of it are booked for this rank. The ranks say among themselves who writes what and
  /// when, and let it go at the same point of their programs. Starts on 64 bytes, contents
  /// undefined. Throws UserError where ranks share no memory.
  virtual SymmetricMemory shared_empty(std::size_t bytes, std::size_t own_bytes);

  /// Ends the job: every rank's pending and later waits throw JobAborted with this message.
  virtual void abort(std::string_view message) = 0;

  /// Blocks until every rank has finished every call this rank has issued: afterwards its own
  /// memory may be overwritten. Moves no bytes.
  virtual void quiesce() = 0;
};

}  // namespace shardbench::comm

#include "tests/comm/nccl/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "tests/comm/elements.h"

namespace shardbench::comm {
namespace {

using sharding::Segment;
using sharding::ShardLayout;

constexpr double kUntouched = -1000;

/// Blocks until the caller's stream is through.
void synchronize(DeviceContext& device) {
  GpuEvent event = nullptr;
  device.cuda.event_create(event, /*timed=*/false);
  device.cuda.event_record(event, device.hooks.current_stream());
  CudaCode code = CudaCode::kNotReady;
  while ((code = device.cuda.event_query(event)) == CudaCode::kNotReady) {
    std::this_thread::yield();
  }
  if (code != CudaCode::kSuccess) throw std::runtime_error(device.cuda.describe(code));
  device.cuda.event_destroy(event);
}

/// Elements in device memory (or the host's), moved in order on the caller's stream.
class Elements {
 public:
  Elements(DeviceContext& device, DType dtype, std::vector<double> values, bool on_host)
      : device_(device), dtype_(dtype), count_(values.size()), host_(count_ * size_of(dtype)) {
    for (std::size_t i = 0; i < count_; ++i) store_element(dtype, values[i], at(i));
    data_ = host_.data();
    if (on_host || host_.empty()) return;
    data_ = device_.hooks.allocate(host_.size(), device_.hooks.current_stream());
    copy(data_, host_.data());
  }
  ~Elements() {
    synchronize(device_);  // the host's side of queued copies
    if (data_ != host_.data()) device_.hooks.release(data_, device_.hooks.current_stream());
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  Buffer buffer() const { return {data_, static_cast<std::int64_t>(count_), dtype_}; }

  std::vector<double> read() {
    if (data_ != host_.data()) {
      copy(host_.data(), data_);
      synchronize(device_);
    }
    std::vector<double> values;
    for (std::size_t i = 0; i < count_; ++i) values.push_back(load_element(dtype_, at(i)));
    return values;
  }

 private:
  void copy(void* to, const void* from) {
    const CudaCode code =
        device_.cuda.memcpy_async(to, from, host_.size(), device_.hooks.current_stream());
    if (code != CudaCode::kSuccess) throw std::runtime_error(device_.cuda.describe(code));
  }
  std::byte* at(std::size_t i) { return host_.data() + i * size_of(dtype_); }

  DeviceContext& device_;
  DType dtype_;
  std::size_t count_;
  std::vector<std::byte> host_;
  void* data_ = nullptr;
};

/// All calls of one rank.
class Matrix {
 public:
  Matrix(Communicator& comm, DeviceContext device, bool on_host)
      : comm_(comm), device_(device), on_host_(on_host) {}

  void run(bool averages) {
    for (const ShardLayout& layout : test_layouts(comm_.world_size())) {
      for (const DType dtype : all_dtypes()) {
        gather(layout, dtype, -1);
        for (int root = 0; root < comm_.world_size(); root += 2) gather(layout, dtype, root);
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
          if (!is_defined(dtype, op) || (op == ReduceOp::kAverage && !averages)) continue;
          for (const bool accumulate : {false, true}) {
            if (accumulate && !device_.accumulates) continue;
            reduce(layout, dtype, op, accumulate, -1);
            reduce(layout, dtype, op, accumulate, comm_.world_size() - 1);
          }
          all_reduce(layout.total(), dtype, op);
        }
      }
    }
    comm_.quiesce();
  }

 private:
  /// `count` elements that are no value of the test's.
  std::vector<double> untouched(DType dtype, std::int64_t count) const {
    const double value = dtype == DType::kUInt8 ? 200 : kUntouched;
    return std::vector<double>(static_cast<std::size_t>(count), rounded(dtype, value));
  }

  double reduced(DType dtype, ReduceOp op, std::int64_t i) const {
    std::vector<double> values;
    for (int peer = 0; peer < comm_.world_size(); ++peer) values.push_back(test_value(peer, i));
    return rounded(dtype, reference_reduce(dtype, op, values));
  }

  /// all_gather (root -1) or broadcast of the root's part.
  void gather(const ShardLayout& layout, DType dtype, int root) {
    std::vector<double> own = untouched(dtype, layout.shard_extent(comm_.rank()));
    for (const Segment& s : layout.segments(comm_.rank())) {
      for (std::int64_t i = 0; i < s.count; ++i) {
        own[static_cast<std::size_t>(s.shard_offset + i)] =
            test_value(comm_.rank(), s.full_offset + i);
      }
    }
    std::vector<double> want = untouched(dtype, layout.full_extent());
    Elements shard(device_, dtype, own, on_host_);
    Elements full(device_, dtype, want, on_host_);
    Work work = root < 0 ? comm_.all_gather(layout, shard.buffer(), full.buffer(), kTag)
                         : comm_.broadcast(layout, root, shard.buffer(), full.buffer(), kTag);
    work.wait();
    for (int peer = 0; peer < comm_.world_size(); ++peer) {
      if (root >= 0 && peer != root) continue;
      for (const Segment& s : layout.segments(peer)) {
        for (std::int64_t i = s.full_offset; i < s.full_offset + s.count; ++i) {
          want[static_cast<std::size_t>(i)] = test_value(peer, i);
        }
      }
    }
    EXPECT_EQ(full.read(), want) << name_of(dtype) << " root " << root;
  }

  /// reduce_scatter (root -1) or reduce to the root.
  void reduce(const ShardLayout& layout, DType dtype, ReduceOp op, bool accumulate, int root) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < layout.full_extent(); ++i) {
      values.push_back(test_value(comm_.rank(), i));
    }
    std::vector<double> want = untouched(dtype, layout.shard_extent(comm_.rank()));
    Elements full(device_, dtype, values, on_host_);
    Elements shard(device_, dtype, want, on_host_);
    Work work =
        root < 0 ? comm_.reduce_scatter(layout, full.buffer(), shard.buffer(), op, accumulate, kTag)
                 : comm_.reduce(layout, root, full.buffer(), shard.buffer(), op, accumulate, kTag);
    work.wait();
    for (const Segment& s : layout.segments(comm_.rank())) {
      if (root >= 0 && root != comm_.rank()) break;
      for (std::int64_t i = 0; i < s.count; ++i) {
        double& value = want[static_cast<std::size_t>(s.shard_offset + i)];
        const double result = reduced(dtype, op, s.full_offset + i);
        value = accumulate ? rounded(dtype, value + result) : result;
      }
    }
    EXPECT_EQ(shard.read(), want) << name_of(dtype) << " op " << static_cast<int>(op) << " root "
                                  << root;
  }

  void all_reduce(std::int64_t count, DType dtype, ReduceOp op) {
    std::vector<double> values;
    std::vector<double> want;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(test_value(comm_.rank(), i));
      want.push_back(reduced(dtype, op, i));
    }
    Elements data(device_, dtype, values, on_host_);
    comm_.all_reduce(data.buffer(), op, kTag).wait();
    EXPECT_EQ(data.read(), want) << name_of(dtype) << " op " << static_cast<int>(op);
  }

  static constexpr CallTag kTag{"values", Phase::kForward};
  Communicator& comm_;
  DeviceContext device_;
  bool on_host_;
};

}  // namespace

void expect_values(Communicator& comm, DeviceContext device, bool on_host, bool averages) {
  Matrix(comm, device, on_host).run(averages);
}

}  // namespace shardbench::comm

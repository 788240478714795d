#include "common/comm/nccl/nccl.h"

#include <cstdlib>
#include <exception>

#include "common/comm/call_spec.h"
#include "common/comm/nccl/engine.h"
#include "common/comm/plain_memory.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

using sharding::ShardLayout;

/// Device memory of the caller's stream.
class DeviceBlock : public SymmetricMemory::Owner {
 public:
  DeviceBlock(std::shared_ptr<NcclEngine> engine, GpuStream stream)
      : engine_(std::move(engine)), stream_(stream) {}
  void release(void* data) override {
    if (data != nullptr) engine_->hooks().release(data, stream_);
  }

 private:
  std::shared_ptr<NcclEngine> engine_;
  GpuStream stream_;
};

class NcclCommunicator : public SpecCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<Job> job, int rank, const NcclOptions& options)
      : exceptions_(std::uncaught_exceptions()),
        engine_(std::make_shared<NcclEngine>(std::move(job), rank, options)),
        symmetric_on_host_(options.symmetric_on_host) {
    engine_->join(options.exchange);
  }

  ~NcclCommunicator() override {
    bool in_order = std::uncaught_exceptions() == exceptions_;
    try {
      if (in_order) engine_->quiesce();
      engine_->shut_down(in_order);
    } catch (const std::exception&) {  // the job has been aborted, its record says why
      engine_->shut_down(false);
    }
  }

  int rank() const override { return engine_->rank(); }
  int world_size() const override { return engine_->world_size(); }
  std::string_view backend() const override { return "nccl"; }

  SymmetricMemory symmetric_empty(std::size_t bytes) override {
    if (symmetric_on_host_) return plain_memory(bytes);
    const GpuStream stream = engine_->hooks().current_stream();
    void* const data = bytes == 0 ? nullptr : engine_->hooks().allocate(bytes, stream);
    return {std::make_shared<DeviceBlock>(engine_, stream), data, bytes};
  }

  void abort(std::string_view message) override { engine_->abort(message); }
  void quiesce() override { engine_->quiesce(); }

 protected:
  Work issue(CallSpec spec) override { return Work(engine_->issue(std::move(spec))); }

 private:
  int exceptions_;
  std::shared_ptr<NcclEngine> engine_;
  bool symmetric_on_host_;
};

class PlainHooks : public DeviceHooks {
 public:
  explicit PlainHooks(CudaApi& cuda) : cuda_(cuda) {}

  GpuStream current_stream() override { return nullptr; }
  void record_stream(const void*, GpuStream) override {}  // its blocks are freed in stream order
  void* allocate(std::size_t bytes, GpuStream stream) override {
    void* data = nullptr;
    check_cuda(cuda_, cuda_.malloc_async(data, bytes, stream), "cudaMallocAsync");
    return data;
  }
  void release(void* data, GpuStream stream) override { cuda_.free_async(data, stream); }
  void add_into(void*, const void*, std::int64_t, DType, GpuStream) override {
    throw UserError(
        "the nccl backend was built without LibTorch's CUDA side, so it cannot accumulate: set "
        "accumulate to false, or build it with a LibTorch that has libtorch_cuda");
  }

 private:
  CudaApi& cuda_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl(std::shared_ptr<Job> job, int rank, NcclOptions options) {
  SHARDBENCH_CHECK(job != nullptr && rank >= 0 && rank < job->world_size(), "rank {}", rank);
  SHARDBENCH_CHECK(options.cuda != nullptr && options.nccl != nullptr && options.hooks != nullptr &&
                   options.exchange != nullptr);
  return std::make_unique<NcclCommunicator>(std::move(job), rank, options);
}

int choose_device(CudaApi& cuda, int host_rank, int host_ranks) {
  SHARDBENCH_CHECK(host_rank >= 0 && host_rank < host_ranks, "rank {} of {}", host_rank,
                   host_ranks);
  int devices = 0;
  const CudaCode code = cuda.device_count(devices);
  if (code != CudaCode::kSuccess || devices == 0) {
    throw UserError::format(
        "no CUDA device ({}): the nccl backend needs an NVIDIA GPU and its driver; without one "
        "choose another backend",
        code == CudaCode::kSuccess ? "none visible" : cuda.describe(code));
  }
  if (devices >= host_ranks) return host_rank;
  if (std::getenv("NCCL_HOSTID") == nullptr) {
    throw UserError::format(
        "{} CUDA device{} for {} ranks on this host: start at most {}, or, to try things out, give "
        "every rank another NCCL_HOSTID so that ranks share a device",
        devices, devices == 1 ? "" : "s", host_ranks, devices);
  }
  return host_rank % devices;
}

std::unique_ptr<DeviceHooks> plain_hooks(CudaApi& cuda) {
  return std::make_unique<PlainHooks>(cuda);
}

ExchangeTexts exchange_over(Communicator& comm) {
  return [&comm](std::string_view text) {
    const auto ranks = static_cast<std::size_t>(comm.world_size());
    const CallTag tag{"texts of the ranks", Phase::kInit};
    std::vector<std::int64_t> sizes(ranks, 0);
    const auto own = static_cast<std::int64_t>(text.size());
    comm.all_gather(ShardLayout::even(comm.world_size(), comm.world_size()),
                    {&own, 1, DType::kInt64}, {sizes.data(), comm.world_size(), DType::kInt64}, tag)
        .wait_released();
    const ShardLayout layout = ShardLayout::contiguous(sizes);
    std::string all(static_cast<std::size_t>(layout.total()), '\0');
    comm.all_gather(layout, {text.data(), own, DType::kUInt8},
                    {all.data(), layout.total(), DType::kUInt8}, tag)
        .wait_released();
    std::vector<std::string> texts;
    std::size_t at = 0;
    for (const std::int64_t size : sizes) {
      texts.push_back(all.substr(at, static_cast<std::size_t>(size)));
      at += texts.back().size();
    }
    return texts;
  };
}

}  // namespace shardbench::comm

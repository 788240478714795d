// Steps of every strategy over the nccl backend and the double of CUDA and NCCL: the double
// executes a call only when somebody waits for it, so a buffer that is read without a wait, written
// too early or let go while it is used shows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/models/build.h"
#include "common/ops/forward_context.h"
#include "common/ops/on_host.h"
#include "common/optim/optimizer.h"
#include "tests/comm/nccl/harness.h"
#include "tests/support/parity_run.h"
#include "tests/support/strategy_case.h"

namespace shardbench::testing {
namespace {

thread_local comm::DoubleHooks* hooks_of_thread = nullptr;

/// ATen's memory is the double's on threads that are its ranks: what tensors hold is device memory
/// to the backend, and poisoned when its stream comes to where it was freed.
class DoubleAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    comm::DoubleHooks* const hooks = hooks_of_thread;
    if (hooks == nullptr || bytes == 0) return before_->allocate(bytes);
    auto* const block = new Block{hooks, hooks->allocate(bytes, hooks->current_stream())};
    return {block->data, block, &release, at::Device(at::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  DoubleAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 1); }
  ~DoubleAllocator() override { c10::SetCPUAllocator(before_, 1); }

 private:
  struct Block {
    comm::DoubleHooks* hooks;
    void* data;
  };
  static void release(void* context) {
    auto* const block = static_cast<Block*>(context);
    block->hooks->release(block->data, block->hooks->current_stream());
    delete block;
  }
  c10::Allocator* before_;
};

/// The wait of a rank whose kernels are the CPU's: what a GPU's stream waits for, it waits for.
class StreamWait : public comm::Work::State {
 public:
  StreamWait(std::shared_ptr<State> inner, comm::NcclRank& rank)
      : inner_(std::move(inner)), rank_(rank) {}
  void wait(Goal goal, comm::Deadline deadline) override {
    inner_->wait(goal, deadline);
    rank_.gpus.synchronize(rank_.hooks.current_stream());
  }
  bool reached(Goal goal) override { return inner_->reached(goal); }
  std::chrono::steady_clock::time_point last_arrival() const override {
    return inner_->last_arrival();
  }
  void poll() override { inner_->poll(); }
  comm::WorkTiming timing() const override { return inner_->timing(); }

 private:
  std::shared_ptr<State> inner_;
  comm::NcclRank& rank_;
};

class HostKernels : public comm::Communicator {
 public:
  explicit HostKernels(comm::NcclRank& rank) : rank_(rank), comm_(rank.comm) {}

  int rank() const override { return comm_.rank(); }
  int world_size() const override { return comm_.world_size(); }
  std::string_view backend() const override { return comm_.backend(); }
  comm::Work all_gather(const sharding::ShardLayout& layout, comm::ConstBuffer shard,
                        comm::Buffer full, comm::CallTag tag) override {
    return watched(comm_.all_gather(layout, shard, full, tag));
  }
  comm::Work reduce_scatter(const sharding::ShardLayout& layout, comm::ConstBuffer full,
                            comm::Buffer shard, comm::ReduceOp op, bool accumulate,
                            comm::CallTag tag) override {
    return watched(comm_.reduce_scatter(layout, full, shard, op, accumulate, tag));
  }
  comm::Work all_reduce(comm::Buffer data, comm::ReduceOp op, comm::CallTag tag) override {
    return watched(comm_.all_reduce(data, op, tag));
  }
  comm::Work broadcast(const sharding::ShardLayout& layout, int root, comm::ConstBuffer shard,
                       comm::Buffer full, comm::CallTag tag) override {
    return watched(comm_.broadcast(layout, root, shard, full, tag));
  }
  comm::Work reduce(const sharding::ShardLayout& layout, int root, comm::ConstBuffer full,
                    comm::Buffer shard, comm::ReduceOp op, bool accumulate,
                    comm::CallTag tag) override {
    return watched(comm_.reduce(layout, root, full, shard, op, accumulate, tag));
  }
  comm::Work barrier(comm::CallTag tag) override { return watched(comm_.barrier(tag)); }
  comm::SymmetricMemory symmetric_empty(std::size_t bytes) override {
    return comm_.symmetric_empty(bytes);
  }
  void abort(std::string_view message) override { comm_.abort(message); }
  void quiesce() override { comm_.quiesce(); }

 private:
  comm::Work watched(const comm::Work& work) {
    return comm::Work(std::make_shared<StreamWait>(work.state(), rank_));
  }
  comm::NcclRank& rank_;
  comm::Communicator& comm_;
};

/// Values and moments of what the rank owns after two steps of two micro-batches, one after the
/// other.
std::vector<float> trained(const std::string& preset, const std::string& strategy_name,
                           DType reduce_dtype, comm::Communicator& ranks) {
  const train::RunConfig config = small_run(preset);
  const std::unique_ptr<Model> model = models::build(config.model);
  const std::unique_ptr<train::Strategy> strategy = all_strategies().find(strategy_name).make();
  train::StrategyOptions options;
  options.reduce_dtype = reduce_dtype;
  strategy->attach({model.get(), &ranks, options, 7, {}});
  std::vector<float> all;
  {
    const auto optimizer = optim::make_optimizer({}, strategy->owned());
    for (int step = 0; step < 2; ++step) {
      strategy->begin_step();
      for (int micro = 0; micro < 2; ++micro) {
        strategy->begin_micro_batch(micro, 2);
        const at::Tensor tokens = fixed({config.batch, config.seq}, step, micro, ranks.rank())
                                      .abs()
                                      .mul(config.model.vocab)
                                      .to(at::kLong);
        const at::Tensor loss = (*model)(tokens, tokens);
        loss.backward(at::full_like(loss, 0.5));
      }
      strategy->finish_gradients();
      optimizer->step(strategy->owned(), strategy->used(), 1.0f);
      strategy->after_optimizer();
      ranks.quiesce();
    }
    for (const OwnedPiece& piece : strategy->owned().pieces) {
      for (const float* data : {static_cast<const float*>(piece.value),
                                optimizer->first_moment(piece), optimizer->second_moment(piece)}) {
        all.insert(all.end(), data, data + piece.count);
      }
    }
  }
  model->detach();
  return all;
}

class NcclTraining : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Strategies, NcclTraining, ::testing::ValuesIn(strategy_names()),
                         [](const auto& each) { return each.param; });

TEST_P(NcclTraining, HasTheBitsOfSharedMemory) {
  const ops::PortableOnly scope;
  at::set_num_threads(1);
  for (const char* preset : {"gpt2-nano", "mlp"}) {
    for (const DType reduce_dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int world_size : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} W={}", preset, name_of(reduce_dtype), world_size));
        std::vector<std::vector<float>> expected(static_cast<std::size_t>(world_size));
        run_ranks(world_size, [&](Rank& rank) {
          expected[static_cast<std::size_t>(rank.rank)] =
              trained(preset, GetParam(), reduce_dtype, rank.comm);
        });
        const DoubleAllocator memory;
        comm::NcclDouble gpus(world_size);
        comm::run_nccl(gpus, world_size, [&](comm::NcclRank& rank) {
          hooks_of_thread = &rank.hooks;
          HostKernels over(rank);
          const std::vector<float> got = trained(preset, GetParam(), reduce_dtype, over);
          hooks_of_thread = nullptr;
          const std::vector<float>& want = expected[static_cast<std::size_t>(rank.rank)];
          ASSERT_FALSE(want.empty());
          ASSERT_EQ(got.size(), want.size());
          EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
        });
      }
    }
  }
}

}  // namespace
}  // namespace shardbench::testing

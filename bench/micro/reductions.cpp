// The kernels that add up what several ranks hold, without any communication; a plain copy beside
// them shows what the memory allows.

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bench/micro/micro.h"
#include "common/comm/reduce.h"

namespace shardbench::micro {

namespace {

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(64)); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Memory zeros(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  Memory memory(static_cast<std::byte*>(::operator new[](size, std::align_val_t(64))));
  std::memset(memory.get(), 0, size);
  return memory;
}

void reduce(benchmark::State& state, DType dtype, comm::ReduceOp op, bool accumulate) {
  const auto ranks = static_cast<std::size_t>(state.range(0));
  const std::int64_t bytes = state.range(1);
  std::vector<Memory> memory;
  std::vector<const void*> sources;
  for (std::size_t r = 0; r < ranks; ++r) {
    memory.push_back(zeros(bytes));
    sources.push_back(memory.back().get());
  }
  const Memory result = zeros(bytes);
  void* const destination = result.get();
  const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype));
  for (auto _ : state) {
    comm::reduce_elements(dtype, op, sources, {&destination, 1}, count, accumulate);
    benchmark::ClobberMemory();
  }
  set_bytes(state, static_cast<double>(bytes) * static_cast<double>(ranks + (accumulate ? 2 : 1)));
}

void copy(benchmark::State& state) {
  const std::int64_t bytes = state.range(0);
  const Memory from = zeros(bytes), to = zeros(bytes);
  for (auto _ : state) {
    std::memcpy(to.get(), from.get(), static_cast<std::size_t>(bytes));
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2.0 * static_cast<double>(bytes));
}

}  // namespace

void register_benchmarks() {
  using comm::ReduceOp;
  const std::vector<std::int64_t> sizes = {16 << 10, 1 << 20, 32 << 20};
  const auto add = [&](const std::string& name, DType dtype, ReduceOp op, bool accumulate) {
    benchmark::RegisterBenchmark(
        (name + "/" + std::string(name_of(dtype))).c_str(),
        [=](benchmark::State& state) { reduce(state, dtype, op, accumulate); })
        ->ArgNames({"W", "bytes"})
        ->ArgsProduct({{2, 4, 8}, sizes})
        ->Unit(benchmark::kMicrosecond);
  };
  for (DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64}) {
    add("sum", dtype, ReduceOp::kSum, false);
  }
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    add("average", dtype, ReduceOp::kAverage, false);
    add("average_accumulate", dtype, ReduceOp::kAverage, true);
  }
  auto* copies = benchmark::RegisterBenchmark("memcpy", copy);
  for (std::int64_t bytes : sizes) copies->Arg(bytes);
  copies->ArgName("bytes")->Unit(benchmark::kMicrosecond);
}

}  // namespace shardbench::micro

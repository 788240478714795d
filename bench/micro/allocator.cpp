// One allocation and its release by the tracking allocator: from its cache, from the system, and
// malloc beside it. Memory is not touched unless the name says so.

#include <c10/core/Allocator.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/micro/micro.h"
#include "common/memory/allocator.h"

namespace shardbench::micro {

namespace {

using benchmark::State;

void cached(State& state) {
  c10::Allocator& allocator = memory::tracking_allocator();
  const auto bytes = static_cast<std::size_t>(state.range(0));
  { const c10::DataPtr first = allocator.allocate(bytes); }
  for (auto _ : state) {
    c10::DataPtr block = allocator.allocate(bytes);
    benchmark::DoNotOptimize(block.get());
  }
}

/// Without what earlier iterations left behind; giving it back is not timed.
void uncached(State& state) {
  c10::Allocator& allocator = memory::tracking_allocator();
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<c10::DataPtr> blocks;
  constexpr std::size_t kBatch = 64;
  blocks.reserve(kBatch);
  memory::release_cached();
  for (auto _ : state) {
    if (blocks.size() == kBatch) {
      state.PauseTiming();
      blocks.clear();
      memory::release_cached();
      state.ResumeTiming();
    }
    blocks.push_back(allocator.allocate(bytes));
  }
}

void touched(State& state, bool reuse) {
  c10::Allocator& allocator = memory::tracking_allocator();
  const auto bytes = static_cast<std::size_t>(state.range(0));
  memory::release_cached();
  for (auto _ : state) {
    {
      c10::DataPtr block = allocator.allocate(bytes);
      std::memset(block.get(), 0, bytes);
    }
    if (!reuse) memory::release_cached();
  }
  set_bytes(state, static_cast<double>(bytes));
}

void system_malloc(State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* block = std::malloc(bytes);
    benchmark::DoNotOptimize(block);
    std::free(block);
  }
}

}  // namespace

void register_benchmarks() {
  const auto add = [](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgName("bytes")
        ->Arg(256)
        ->Arg(64 << 10)
        ->Arg(1 << 20)
        ->Arg(16 << 20);
  };
  add("cached", cached);
  add("uncached", uncached);
  add("touched_cached", [](State& state) { touched(state, true); });
  add("touched_uncached", [](State& state) { touched(state, false); });
  add("malloc", system_malloc);
}

}  // namespace shardbench::micro

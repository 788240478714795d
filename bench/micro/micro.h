#pragma once

#include <benchmark/benchmark.h>

#include <string>

namespace shardbench::micro {

/// Registers what a program measures; each has one.
void register_benchmarks();

/// Sets the process up before anything is measured: one LibTorch thread and the tracking
/// allocator, as in a rank (setup_torch.cpp), or nothing (setup_plain.cpp).
void set_up();

/// Version of the LibTorch that the program uses; "none" if it uses none.
std::string torch_version();

/// `bytes` moved or touched per call, as bytes_per_second.
inline void set_bytes(benchmark::State& state, double bytes) {
  state.SetBytesProcessed(
      static_cast<std::int64_t>(bytes * static_cast<double>(state.iterations())));
}

/// `amount` per call as a rate under `name`.
inline void set_rate(benchmark::State& state, const std::string& name, double amount) {
  state.counters[name] = benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace shardbench::micro

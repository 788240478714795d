#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace shardbench {

/// One cache of CPU 0, named as Google Benchmark does.
struct CacheInfo {
  std::string type;  ///< "Data", "Instruction", "Unified"
  int level = 0;
  std::int64_t size = 0;  ///< bytes
  int num_sharing = 0;    ///< CPUs that share it; 0: not known
};

/// The machine that a result was made on. Empty, 0 or -1 where the system does not say.
struct MachineInfo {
  std::string cpu_model;
  int num_cpus = 0;  ///< that this process may use
  double mhz_per_cpu = 0;
  std::vector<CacheInfo> caches;
  std::int64_t memory_bytes = 0;
  std::array<double, 3> load_avg{-1, -1, -1};  ///< over 1, 5 and 15 minutes
  std::string host_name;
  std::string kernel;  ///< "Linux 6.1.0 x86_64"
  std::string date;    ///< local time, ISO 8601 with offset: "2026-03-01T09:30:00+01:00"
};

/// Reads everything afresh (the load average and date are those of the call).
MachineInfo machine_info();

}  // namespace shardbench

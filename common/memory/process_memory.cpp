#include "common/memory/process_memory.h"

#include <sys/resource.h>

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace shardbench::memory {
namespace {

/// The value of a "Name:   123 kB" line in bytes, or -1 if the line has another name.
std::int64_t kib_line(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return -1;
  line.remove_prefix(name.size());
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return -1;
  std::int64_t kib = -1;
  const auto [end, error] = std::from_chars(line.data() + begin, line.data() + line.size(), kib);
  return error == std::errc{} ? kib * 1024 : -1;
}

}  // namespace

ProcessMemory resident_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (const auto bytes = kib_line(line, "VmHWM:"); bytes >= 0) memory.peak_resident = bytes;
    if (const auto bytes = kib_line(line, "VmRSS:"); bytes >= 0) memory.resident = bytes;
  }
  return memory;
}

ProcessMemory process_memory() {
  ProcessMemory memory = resident_memory();
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (const auto bytes = kib_line(line, "Pss:"); bytes >= 0) memory.proportional = bytes;
  }
  return memory;
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::int64_t minor_faults() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : -1;
}

}  // namespace shardbench::memory

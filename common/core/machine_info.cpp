#include "common/core/machine_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string_view>

namespace shardbench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The value of the first "name : value" line of /proc/cpuinfo.
std::string cpuinfo(std::string_view name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string{} : line.substr(begin);
  }
  return {};
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
}

double cpu_mhz() {
  const std::string khz = first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  if (!khz.empty()) return std::strtod(khz.c_str(), nullptr) / 1e3;
  return std::strtod(cpuinfo("cpu MHz").c_str(), nullptr);
}

/// CPUs in a mask such as "00000000,00000003".
int cpus_in_mask(const std::string& mask) {
  int count = 0;
  for (char c : mask) {
    const char digit[2] = {c, 0};
    count += std::popcount(static_cast<unsigned long>(std::strtoul(digit, nullptr, 16)));
  }
  return count;
}

/// "48K", "2M" in bytes.
std::int64_t parse_size(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (*end == 'K') return value << 10;
  if (*end == 'M') return value << 20;
  return value;
}

std::vector<CacheInfo> cpu_caches() {
  std::vector<CacheInfo> caches;
  for (int i = 0;; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    CacheInfo cache;
    cache.type = first_line(folder + "type");
    if (cache.type.empty()) return caches;
    cache.level = std::atoi(first_line(folder + "level").c_str());
    cache.size = parse_size(first_line(folder + "size"));
    cache.num_sharing = cpus_in_mask(first_line(folder + "shared_cpu_map"));
    caches.push_back(std::move(cache));
  }
}

std::string local_date() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[40];
  if (std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S%z", &local) == 0) return {};
  std::string date = text;
  if (date.size() > 2) date.insert(date.size() - 2, 1, ':');  // +0100 -> +01:00
  return date;
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu_model = cpuinfo("model name");
  info.num_cpus = usable_cpus();
  info.mhz_per_cpu = cpu_mhz();
  info.caches = cpu_caches();
  const long pages = sysconf(_SC_PHYS_PAGES);
  if (pages > 0) info.memory_bytes = std::int64_t{pages} * sysconf(_SC_PAGESIZE);
  double load[3];
  if (getloadavg(load, 3) == 3) std::copy(load, load + 3, info.load_avg.begin());
  utsname system{};
  if (uname(&system) == 0) {
    info.host_name = system.nodename;
    info.kernel = std::string(system.sysname) + " " + system.release + " " + system.machine;
  }
  info.date = local_date();
  return info;
}

}  // namespace shardbench

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <string_view>

#include "common/comm/link.h"
#include "common/comm/link_schedule.h"
#include "common/core/error.h"

namespace shardbench::comm {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 6> kRates = {{{"Gbit", 1e9 / 8},
                                         {"Mbit", 1e6 / 8},
                                         {"kbit", 1e3 / 8},
                                         {"GB/s", 1e9},
                                         {"MB/s", 1e6},
                                         {"KB/s", 1e3}}};
constexpr std::array<Unit, 4> kTimes = {{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};

[[noreturn]] void refuse(const std::string& text) {
  throw UserError::format(
      "link '{}': give RATE,LATENCY such as 25Gbit,20us: RATE in kbit Mbit Gbit (per second) or "
      "KB/s MB/s GB/s, LATENCY in ns us ms s",
      text);
}

/// "25Gbit" -> 25 x factor; refuses other units, signs, and anything that is no finite number.
template <std::size_t kCount>
double parse_quantity(std::string_view quantity, const std::array<Unit, kCount>& units,
                      const std::string& text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(quantity.data(), quantity.data() + quantity.size(), value);
  if (error != std::errc{} || !std::isfinite(value) || value < 0) refuse(text);
  const std::string_view unit = quantity.substr(static_cast<std::size_t>(end - quantity.data()));
  for (const Unit& candidate : units) {
    if (unit == candidate.name) return value * candidate.factor;
  }
  refuse(text);
}

int ceil_log2(int n) { return n <= 1 ? 0 : static_cast<int>(std::bit_width(unsigned(n - 1))); }

/// The part of `rank`: what it puts into a gather or keeps of a reduction.
std::int64_t part_bytes_of(const CallShape& shape, int world_size, int rank) {
  const auto bytes = static_cast<std::int64_t>(size_of(shape.dtype));
  if (shape.layout != nullptr) return shape.layout->count(rank) * bytes;
  if (shape.kind != CollectiveKind::kAllReduce) return 0;
  return bytes *
         all_reduce_slice(shape.payload_bytes / bytes, shape.dtype, world_size, rank).size();
}

}  // namespace

LinkSpeed LinkSpeed::parse(const std::string& text) {
  const std::string_view view = text;
  const std::size_t comma = view.find(',');
  if (comma == std::string_view::npos) refuse(text);
  LinkSpeed link;
  link.bytes_per_second = parse_quantity(view.substr(0, comma), kRates, text);
  const double latency = parse_quantity(view.substr(comma + 1), kTimes, text);
  if (link.bytes_per_second <= 0 || latency > 3600e9) refuse(text);
  link.latency = std::chrono::nanoseconds(std::llround(latency));
  return link;
}

std::string LinkSpeed::to_string() const {
  const double bits = bytes_per_second * 8;
  const std::string rate = bits >= 1e9   ? fmt::format("{:.6g}Gbit", bits / 1e9)
                           : bits >= 1e6 ? fmt::format("{:.6g}Mbit", bits / 1e6)
                                         : fmt::format("{:.6g}kbit", bits / 1e3);
  const std::int64_t ns = latency.count();
  const std::string delay = ns % 1'000'000'000 == 0 && ns != 0
                                ? fmt::format("{}s", ns / 1'000'000'000)
                            : ns % 1'000'000 == 0 && ns != 0 ? fmt::format("{}ms", ns / 1'000'000)
                            : ns % 1'000 == 0                ? fmt::format("{}us", ns / 1'000)
                                                             : fmt::format("{}ns", ns);
  return rate + "," + delay;
}

std::string LinkModel::to_string() const {
  const std::string text = LinkSpeed::to_string();
  if (!hosts) return text;
  return fmt::format("{}; {} between hosts of {}", text, hosts->speed.to_string(),
                     hosts->ranks_per_host);
}

void validate(const LinkModel& link, int world_size) {
  if (!link.hosts || world_size % link.hosts->ranks_per_host == 0) return;
  throw UserError::format(
      "--ranks-per-host {}: {} ranks do not fill hosts of {}; give a divisor of {}",
      link.hosts->ranks_per_host, world_size, link.hosts->ranks_per_host, world_size);
}

int rounds_of(CollectiveKind kind, int world_size) {
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return world_size - 1;
    case CollectiveKind::kAllReduce:
      return 2 * (world_size - 1);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return ceil_log2(world_size);
    case CollectiveKind::kBarrier:
      return 2 * ceil_log2(world_size);
  }
  return 0;
}

AlgoBytes algo_bytes(CollectiveKind kind, int world_size, int rank, int root,
                     std::int64_t payload_bytes, std::int64_t part_bytes) {
  const std::int64_t peers = world_size - 1;
  const bool is_root = rank == root;
  switch (kind) {
    case CollectiveKind::kAllGather:
      return {peers * part_bytes, payload_bytes - part_bytes};
    case CollectiveKind::kReduceScatter:
      return {payload_bytes - part_bytes, peers * part_bytes};
    case CollectiveKind::kAllReduce: {
      // Reduce-scatter of the slices, then all-gather of the results.
      const std::int64_t both = payload_bytes - part_bytes + peers * part_bytes;
      return {both, both};
    }
    case CollectiveKind::kBroadcast:
      return is_root ? AlgoBytes{peers * payload_bytes, 0} : AlgoBytes{0, payload_bytes};
    case CollectiveKind::kReduce:
      return is_root ? AlgoBytes{0, peers * payload_bytes} : AlgoBytes{payload_bytes, 0};
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

CallLoad load_of(const LinkModel& link, const CallShape& shape, int world_size, int rank) {
  const auto load = [&](int members, int self, int root, std::int64_t part) -> PortLoad {
    return {rounds_of(shape.kind, members),
            algo_bytes(shape.kind, members, self, root, shape.payload_bytes, part)};
  };
  if (!link.hosts) return {load(world_size, rank, shape.root, shape.part_bytes), {}};
  const int each = link.hosts->ranks_per_host;
  const int host = rank / each;
  std::int64_t part_of_host = 0;
  for (int r = host * each; r < (host + 1) * each; ++r) {
    part_of_host += part_bytes_of(shape, world_size, r);
  }
  // Inside a host its ranks share evenly what they hand on to each other.
  const int self = rank % each;
  const std::int64_t handed_on =
      shape.payload_bytes * (self + 1) / each - shape.payload_bytes * self / each;
  return {load(each, self, shape.root % each, handed_on),
          load(world_size / each, host, shape.root / each, part_of_host)};
}

PortUse schedule(const LinkSpeed& speed, const PortLoad& load,
                 std::chrono::steady_clock::time_point ready, const PortFree& port) {
  const AlgoBytes& bytes = load.bytes;
  const bool sends = bytes.sent > 0 || bytes.received == 0;
  const bool receives = bytes.received > 0 || bytes.sent == 0;
  auto start = ready;
  if (sends) start = std::max(start, port.send);
  if (receives) start = std::max(start, port.receive);
  const auto through = [&](std::int64_t moved) {
    const double seconds = static_cast<double>(moved) / speed.bytes_per_second;
    return start + load.rounds * speed.latency +
           std::chrono::nanoseconds(std::llround(seconds * 1e9));
  };
  return {
      start,
      through(std::max(bytes.sent, bytes.received)),
      {sends ? through(bytes.sent) : port.send, receives ? through(bytes.received) : port.receive}};
}

}  // namespace shardbench::comm

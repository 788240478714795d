#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// A network link: every rank has one full-duplex port of this rate.
struct LinkModel {
  double bytes_per_second = 0;
  std::chrono::nanoseconds latency{0};

  /// "25Gbit,20us": RATE in bit/s (kbit Mbit Gbit) or bytes/s (KB/s MB/s GB/s), LATENCY in ns us
  /// ms s. Throws UserError naming the valid form.
  static LinkModel parse(const std::string& text);
  std::string to_string() const;
};

/// Message rounds of a collective on `world_size` ranks: all_gather, reduce_scatter W-1 (ring);
/// all_reduce 2(W-1); broadcast, reduce ceil(log2 W); barrier 2 ceil(log2 W).
int rounds_of(CollectiveKind kind, int world_size);

/// Bytes that `rank` sends / receives by definition of the collective (design: algo bytes).
/// `part_bytes` is the rank's own part, `payload_bytes` the full tensor.
struct AlgoBytes {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};
AlgoBytes algo_bytes(CollectiveKind kind, int world_size, int rank, int root,
                     std::int64_t payload_bytes, std::int64_t part_bytes);

/// Delays the completion of every call on `inner` as the link would, without using the CPU: each
/// direction of a rank's port has a queue; time = rounds x latency + max(sent, received) / rate,
/// from the last arrival. Bytes still move through `inner`.
std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner, LinkModel link);

}  // namespace shardbench::comm

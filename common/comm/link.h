#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/communicator.h"

namespace shardbench::comm {

/// What a full-duplex port can do.
struct LinkSpeed {
  double bytes_per_second = 0;
  std::chrono::nanoseconds latency{0};

  /// "25Gbit,20us": RATE in bit/s (kbit Mbit Gbit) or bytes/s (KB/s MB/s GB/s), LATENCY in ns us
  /// ms s. Throws UserError naming the valid form.
  static LinkSpeed parse(const std::string& text);
  std::string to_string() const;
};

/// The network between hosts: ranks stand on them in blocks, those of one host share its port.
struct HostLink {
  LinkSpeed speed;
  int ranks_per_host = 1;
};

/// A network: every rank has one port. With `hosts`, every byte that leaves a host crosses the
/// host's port besides, once for each other host that needs it; a call passes the hosts' ports
/// first, then the ranks'.
struct LinkModel : LinkSpeed {
  std::optional<HostLink> hosts = {};

  /// One level: see LinkSpeed::parse.
  static LinkModel parse(const std::string& text) { return {LinkSpeed::parse(text), {}}; }
  std::string to_string() const;  ///< "100Gbit,1us; 10Gbit,20us between hosts of 4"
};

/// Throws UserError unless the hosts are full: world_size is a multiple of ranks_per_host.
void validate(const LinkModel& link, int world_size);

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
/// direction of a port has a queue; time = rounds x latency + max(sent, received) / rate, from the
/// last arrival. Between hosts rounds and bytes are those of the same collective with hosts in the
/// place of ranks, inside a host those of its ranks alone. Bytes still move through `inner`.
std::unique_ptr<Communicator> with_link(std::unique_ptr<Communicator> inner, const LinkModel& link);

}  // namespace shardbench::comm

#include "bench/collectives/peer_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/collectives/report.h"
#include "bench/compare/cells.h"
#include "bench/compare/format.h"
#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using json = nlohmann::ordered_json;

Bandwidth bandwidth_of(const PeersReport& report, std::size_t row, const CollectivePeer& peer) {
  const CollectiveCase& shape = report.ours.results[row].row;
  return bench::bandwidth_of(shape.kind, report.ours.request.world_size, shape.bytes(),
                             peer.timings[row].time_us);
}

Cell bandwidth_cell(double gb_per_s) { return Cell::of(figures(gb_per_s), gb_per_s); }

int code_of(const CollectivePeer& peer) {
  if (peer.signal != 0) return 128 + peer.signal;
  if (peer.failure) {
    const bool lost = peer.failure->reason == comm::AbortRecord::Reason::kLost ||
                      peer.failure->reason == comm::AbortRecord::Reason::kTimeout;
    return lost ? 3 : 1;
  }
  const bool wrong = std::any_of(peer.timings.begin(), peer.timings.end(),
                                 [](const CollectivePeerTiming& t) { return t.wrong > 0; });
  return wrong ? 1 : 0;
}

/// No bandwidth of a wrong result.
std::vector<Cell> peer_cells(const PeersReport& report, std::size_t row, const CollectivePeer& peer,
                             double ours) {
  if (peer.timings.empty()) return {"FAILED", kDash};
  if (peer.timings[row].wrong > 0) return {"WRONG", kDash};
  const double theirs = bandwidth_of(report, row, peer).bus_gb_per_s;
  return {bandwidth_cell(theirs), ratio_to_cell(ours, theirs)};
}

json peer_json(const PeersReport& report, const CollectivePeer& peer) {
  json rows = json::array();
  for (std::size_t i = 0; i < peer.timings.size(); ++i) {
    const CollectiveResult& result = report.ours.results[i];
    json row = {{"op", name_of(result.row.kind)},
                {"size", result.row.bytes()},
                {"count", result.row.count},
                {"nwrong", peer.timings[i].wrong}};
    if (peer.timings[i].wrong == 0) {
      const Bandwidth bandwidth = bandwidth_of(report, i, peer);
      row["time_us"] = peer.timings[i].time_us;
      row["alg_bw"] = bandwidth.algo_gb_per_s;
      row["bus_bw"] = bandwidth.bus_gb_per_s;
      if (bandwidth.bus_gb_per_s > 0) {
        row["ours_over_peer"] =
            timing_beside_peers(result).bandwidth.bus_gb_per_s / bandwidth.bus_gb_per_s;
      }
    }
    rows.push_back(std::move(row));
  }
  json out = {{"name", peer.name}, {"title", peer.title}, {"collectives", std::move(rows)}};
  out["error_occurred"] = code_of(peer) != 0;
  out["error_message"] = peer.failure ? peer.failure->message : "";
  return out;
}

}  // namespace

const std::vector<std::string>& collective_peer_names() {
  static const std::vector<std::string> kNames = {"gloo", "mpi"};
  return kNames;
}

void refuse_unknown_to_peers(const CollectivesRequest& request) {
  const auto refuse = [](bool wrong, const char* what, const char* instead) {
    if (wrong) throw UserError::format("--peers: peers do not {}; {}", what, instead);
  };
  refuse(request.dtypes != std::vector<DType>{DType::kFloat32}, "measure other types than fp32",
         "leave -d out");
  refuse(request.ops != std::vector<comm::ReduceOp>{comm::ReduceOp::kSum},
         "measure other operations than sum", "leave -o out");
  refuse(request.root != 0, "have another root than 0", "leave --root out");
  refuse(request.link.has_value(), "know emulated networks", "leave --link out");
}

const CollectiveTiming& timing_beside_peers(const CollectiveResult& result) {
  const CollectiveKind kind = result.row.kind;
  const bool apart = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  return apart ? result.out_of_place : result.in_place;
}

CollectivesReport mean_of(const std::vector<CollectivesReport>& rounds) {
  SHARDBENCH_CHECK(!rounds.empty());
  CollectivesReport mean = rounds.front();
  for (const CollectivesReport& round : rounds) {
    if (round.failure || round.signal != 0) return round;
    SHARDBENCH_CHECK_EQ(round.results.size(), mean.results.size());
  }
  const auto merge = [&](std::size_t row, CollectiveTiming CollectiveResult::*place) {
    CollectiveTiming& timing = mean.results[row].*place;
    timing.time_us = 0;
    timing.wrong = 0;
    for (const CollectivesReport& round : rounds) {
      const CollectiveTiming& one = round.results[row].*place;
      timing.time_us += one.time_us / static_cast<double>(rounds.size());
      timing.wrong += one.wrong;
    }
    const CollectiveCase& shape = mean.results[row].row;
    timing.bandwidth =
        bench::bandwidth_of(shape.kind, mean.request.world_size, shape.bytes(), timing.time_us);
  };
  for (std::size_t row = 0; row < mean.results.size(); ++row) {
    merge(row, &CollectiveResult::out_of_place);
    merge(row, &CollectiveResult::in_place);
  }
  return mean;
}

int PeersReport::exit_code() const {
  int code = ours.exit_code();
  for (const CollectivePeer& peer : peers) code = std::max(code, code_of(peer));
  return code;
}

Table peers_table(const PeersReport& report) {
  std::vector<Column> columns = {{"", "op", true, "op"},
                                 {"size", "(B)", false, "size"},
                                 {"ours", "busbw (GB/s)", false, "ours_bus_bw"}};
  for (const CollectivePeer& peer : report.peers) {
    columns.push_back({peer.name, "busbw (GB/s)", false, peer.name + "_bus_bw"});
    columns.push_back({peer.name, "ours x", false, "ours_over_" + peer.name});
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < report.ours.results.size(); ++i) {
    const CollectiveResult& result = report.ours.results[i];
    const CollectiveTiming& timing = timing_beside_peers(result);
    const double ours = timing.wrong > 0 ? 0 : timing.bandwidth.bus_gb_per_s;
    std::vector<Cell> cells = {std::string(name_of(result.row.kind)), Cell::of(result.row.bytes()),
                               timing.wrong > 0 ? Cell("WRONG") : bandwidth_cell(ours)};
    for (const CollectivePeer& peer : report.peers) {
      for (Cell& cell : peer_cells(report, i, peer, ours)) cells.push_back(std::move(cell));
    }
    table.add_row(std::move(cells));
  }
  return table;
}

std::string peers_text(const PeersReport& report) {
  const CollectivesRequest& request = report.ours.request;
  std::string out = fmt::format(
      "# shardbench collectives beside others: backend {}, {} ranks, fp32, {} memory\n"
      "# {} rounds in turns, each {} iterations after {} of warm-up; each peer's results checked\n"
      "# busbw   as in the table without --peers, of ranks on this machine; in place where a peer\n"
      "#         works in place (all_reduce, broadcast, reduce)\n"
      "# ours x  our bandwidth over the peer's\n",
      report.ours.backend, request.world_size, request.symmetric ? "symmetric" : "plain",
      report.rounds, request.iterations, request.warmup);
  for (const CollectivePeer& peer : report.peers) {
    out += fmt::format("# {:<7} {}\n", peer.name,
                       peer.failure ? "FAILED: " + peer.failure->message : peer.title);
  }
  return out + "\n" + peers_table(report).render();
}

json peers_json(const PeersReport& report) {
  json out = collectives_json(report.ours);
  out.erase("okay");
  out["config"]["rounds"] = report.rounds;
  json peers = json::array();
  for (const CollectivePeer& peer : report.peers) peers.push_back(peer_json(report, peer));
  out["peers"] = std::move(peers);
  out["okay"] = report.exit_code() == 0;
  return out;
}

}  // namespace shardbench::bench

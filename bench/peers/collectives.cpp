#include "bench/peers/collectives.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "bench/peers/unnamed_file.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;
namespace fs = std::filesystem;

bool on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((fs::path(folder) / name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

/// mpirun with its flags and the program for it; empty when no MPI has both.
std::vector<std::string> mpi_command(const std::string& executable, int world_size) {
  for (const std::string implementation : {"openmpi", "mpich"}) {
    const fs::path program =
        fs::path(executable).parent_path() / ("mpi_collectives_" + implementation);
    const std::string mpirun = "mpirun." + implementation;
    if (::access(program.c_str(), X_OK) != 0 || !on_path(mpirun)) continue;
    std::vector<std::string> command = {mpirun, "-n", std::to_string(world_size)};
    if (implementation == "openmpi") {
      command.emplace_back("--oversubscribe");
      if (::getuid() == 0) command.emplace_back("--allow-run-as-root");
    }
    command.push_back(program.string());
    return command;
  }
  return {};
}

std::vector<std::string> mpi_arguments(const CollectivesRequest& request) {
  std::vector<std::string> arguments = {std::to_string(request.iterations),
                                        std::to_string(request.warmup)};
  for (const CollectiveCase& row : plan_cases(request)) {
    arguments.push_back(fmt::format("{}:{}", name_of(row.kind), row.count));
  }
  return arguments;
}

json gloo_work(const CollectivesRequest& request) {
  json rows = json::array();
  for (const CollectiveCase& row : plan_cases(request)) {
    rows.push_back({{"op", name_of(row.kind)}, {"count", row.count}});
  }
  return {{"world_size", request.world_size},
          {"iterations", request.iterations},
          {"warmup", request.warmup},
          {"timeout_s", std::chrono::duration<double>(request.timeout).count()},
          {"rows", std::move(rows)}};
}

/// Takes lines "row {...}" in the order of the rows, and "title ...".
class Collector {
 public:
  explicit Collector(CollectivePeer& peer) : peer_(peer) {}

  bool take(const std::string& line) {
    if (line.starts_with("title ")) peer_.title = line.substr(6);
    if (!line.starts_with("row ")) return false;
    try {
      const json row = json::parse(line.substr(4));
      const double time_us = row.at("time_us");
      if (!(time_us > 0)) return false;
      peer_.timings.push_back({time_us, row.at("nwrong")});
      return true;
    } catch (const json::exception&) {
      return false;
    }
  }

 private:
  CollectivePeer& peer_;
};

std::string title_of(const std::string& name) { return name == "gloo" ? "Gloo" : "plain MPI"; }

}  // namespace

CollectivePeer run_collective_peer(const std::string& name, const PeerTools& tools,
                                   const std::string& executable,
                                   const CollectivesRequest& request) {
  CollectivePeer peer;
  peer.name = name;
  peer.title = title_of(name);
  ChildRequest child;
  std::optional<UnnamedFile> work;
  if (name == "gloo") {
    if (!tools.has_python()) {
      peer.failure = not_installed(tools, "torch");
      return peer;
    }
    work.emplace();
    std::ofstream(work->path()) << gloo_work(request).dump();
    child.command = {tools.python, (tools.scripts / "collectives.py").string(), work->path()};
  } else {
    child.command = mpi_command(executable, request.world_size);
    if (child.command.empty()) {
      peer.failure = unusable_result(
          "no mpirun with its mpi_collectives beside the program; ./shardbench setup all, then "
          "./shardbench build all");
      return peer;
    }
    for (std::string& argument : mpi_arguments(request))
      child.command.push_back(std::move(argument));
  }
  Collector collector(peer);
  child.environment = {{"OMP_NUM_THREADS", "1"}};
  child.silence = request.timeout;
  child.on_line = [&](const std::string& line) { return collector.take(line); };
  const ChildOutcome outcome = run_child(child);
  peer.signal = outcome.signal;
  const std::size_t rows = plan_cases(request).size();
  if (!outcome.well()) {
    peer.failure = failure_of(outcome, "torch");
  } else if (peer.timings.size() != rows) {
    peer.failure =
        unusable_result(fmt::format("it reports {} rows, not {}", peer.timings.size(), rows));
  }
  if (peer.failure) peer.timings.clear();
  return peer;
}

PeersReport run_beside_peers(comm::Ranks& ranks, const CollectivesRequest& request,
                             const std::vector<std::string>& peers, const PeerTools& tools,
                             const std::string& executable, int rounds,
                             const std::function<void(const std::string& what)>& begin) {
  PeersReport report;
  report.rounds = rounds;
  std::vector<CollectivesReport> ours;
  const auto add = [&](CollectivePeer& sum, CollectivePeer one) {
    if (one.failure || one.signal != 0) {
      sum = std::move(one);
      return;
    }
    for (std::size_t i = 0; i < sum.timings.size(); ++i) {
      sum.timings[i].time_us += one.timings[i].time_us;
      sum.timings[i].wrong += one.timings[i].wrong;
    }
  };
  int signal = 0;
  for (int round = 0; round < rounds && signal == 0; ++round) {
    if (begin) begin("shardbench");
    ours.push_back(run_collectives(ranks, request));
    signal = ours.back().signal;
    for (std::size_t p = 0; p < peers.size() && signal == 0; ++p) {
      if (round > 0 && report.peers[p].failure) continue;
      if (begin) begin(title_of(peers[p]));
      CollectivePeer one = run_collective_peer(peers[p], tools, executable, request);
      signal = one.signal;
      if (round == 0) {
        report.peers.push_back(std::move(one));
      } else {
        add(report.peers[p], std::move(one));
      }
    }
  }
  report.ours = mean_of(ours);
  for (CollectivePeer& peer : report.peers) {
    for (CollectivePeerTiming& timing : peer.timings) timing.time_us /= rounds;
  }
  return report;
}

}  // namespace shardbench::bench

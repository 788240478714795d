#include "bench/collectives/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "bench/collectives/rank_bench.h"
#include "common/core/error.h"
#include "common/core/machine_info.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::json;

std::string position_of(const CollectiveCase& row) {
  return fmt::format("{} {} B", name_of(row.kind), row.bytes());
}

/// The planted fault, if this is its rank and row.
class FaultPlan {
 public:
  FaultPlan(const CollectivesRequest& request, int rank) : request_(request), rank_(rank) {}

  void before_row(int row) {
    row_ = row;
    if (!here()) return;
    if (request_.fault->kind == CollectivesFault::Kind::kKill) ::raise(SIGKILL);
    while (request_.fault->kind == CollectivesFault::Kind::kStall) ::pause();
  }
  void spoil(std::span<std::byte> output) const {
    const bool wrong = here() && request_.fault->kind == CollectivesFault::Kind::kWrong;
    if (wrong && !output.empty()) output[output.size() / 2] ^= std::byte{0x40};
  }

 private:
  bool here() const {
    return request_.fault && request_.fault->rank == rank_ && request_.fault->row == row_;
  }
  const CollectivesRequest& request_;
  int rank_;
  int row_ = 0;
};

json to_json(const RankMeasure& measure) {
  return json::array({measure.time_us, measure.wrong, measure.wire_bytes});
}

/// The life of one rank: every row twice.
std::string rank_main(const CollectivesRequest& request, const std::vector<CollectiveCase>& rows,
                      const comm::Seat& seat) {
  const std::shared_ptr<comm::Job>& job = seat.job;
  const int rank = seat.rank;
  comm::Transport transport = seat.connect();
  std::unique_ptr<comm::Communicator> ranks = std::move(transport.ranks);
  if (request.link) ranks = comm::with_link(std::move(ranks), *request.link);
  FaultPlan fault(request, rank);
  RankBench bench(*ranks, transport.wire.get(), request,
                  [&](const CollectiveCase&, std::span<std::byte> output) { fault.spoil(output); });
  json results = json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    job->set_position(rank, Phase::kInit, position_of(rows[i]));
    fault.before_row(static_cast<int>(i) + 1);
    json both = json::array();
    for (const bool in_place : {false, true}) {
      both.push_back(to_json(bench.measure(rows[i], in_place)));
    }
    results.push_back(std::move(both));
    job->set_progress(rank, static_cast<std::int64_t>(i) + 1);
  }
  return json{{"pid", ::getpid()}, {"rows", std::move(results)}}.dump();
}

/// Brings the ranks' halves of one row together.
CollectiveTiming timing_of(const CollectiveCase& row, const std::vector<json>& ranks,
                           std::size_t index, std::size_t place) {
  CollectiveTiming timing;
  for (const json& rank : ranks) {
    const json& measure = rank["rows"][index][place];
    timing.time_us = std::max(timing.time_us, measure[0].get<double>());
    timing.wrong += measure[1].get<std::int64_t>();
    timing.wire_bytes_mean += measure[2].get<double>() / static_cast<double>(ranks.size());
  }
  timing.bandwidth =
      bandwidth_of(row.kind, static_cast<int>(ranks.size()), row.bytes(), timing.time_us);
  return timing;
}

}  // namespace

std::int64_t CollectivesReport::wrong() const {
  std::int64_t sum = 0;
  for (const CollectiveResult& result : results) {
    sum += result.out_of_place.wrong + result.in_place.wrong;
  }
  return sum;
}

double CollectivesReport::average_bus_gb_per_s() const {
  if (results.empty()) return 0;
  double sum = 0;
  for (const CollectiveResult& result : results) {
    sum += result.out_of_place.bandwidth.bus_gb_per_s + result.in_place.bandwidth.bus_gb_per_s;
  }
  return sum / (2 * static_cast<double>(results.size()));
}

int CollectivesReport::exit_code() const {
  if (signal != 0) return 128 + signal;
  if (!failure) return wrong() > 0 ? 1 : 0;
  const bool lost = failure->reason == comm::AbortRecord::Reason::kLost ||
                    failure->reason == comm::AbortRecord::Reason::kTimeout;
  return lost ? 3 : 1;
}

CollectivesReport run_collectives(comm::Ranks& ranks_of_job, const CollectivesRequest& request,
                                  const std::function<void(std::int64_t done)>& on_row) {
  const std::vector<CollectiveCase> rows = plan_cases(request);
  const comm::RanksRequest wanted{request.world_size, request.timeout, request.backend};
  CollectivesReport report;
  report.request = request;
  report.backend = ranks_of_job.backend_for(wanted);
  comm::refuse_link(request.link.has_value(), report.backend);
  const comm::JobOutcome outcome = ranks_of_job.run(
      wanted, [&](const comm::Seat& seat) { return rank_main(request, rows, seat); }, on_row);
  report.host = machine_info().host_name;
  report.failure = outcome.failure;
  report.signal = outcome.signal;
  if (!outcome.ok) return report;
  std::vector<json> ranks;
  for (const std::string& result : outcome.results) ranks.push_back(json::parse(result));
  for (const json& rank : ranks) report.pids.push_back(rank["pid"].get<std::int64_t>());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    report.results.push_back(
        {rows[i], timing_of(rows[i], ranks, i, 0), timing_of(rows[i], ranks, i, 1)});
  }
  return report;
}

}  // namespace shardbench::bench

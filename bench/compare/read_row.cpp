#include "bench/compare/read_row.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "bench/compare/request.h"
#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

Phase read_phase(const json& text) {
  for (int p = 0; p < kPhaseCount; ++p) {
    const auto phase = static_cast<Phase>(p);
    if (text == name_of(phase)) return phase;
  }
  throw UserError::format("unknown phase {}", text.dump());
}

comm::CollectiveKind read_kind(const json& text) {
  for (int k = 0; k < comm::kCollectiveKindCount; ++k) {
    const auto kind = static_cast<comm::CollectiveKind>(k);
    if (text == comm::name_of(kind)) return kind;
  }
  throw UserError::format("unknown kind of call {}", text.dump());
}

memory::CategoryBytes read_categories(const json& stored) {
  memory::CategoryBytes bytes{};
  for (int c = 0; c < memory::kCategoryCount; ++c) {
    bytes[static_cast<std::size_t>(c)] =
        stored.value(std::string(name_of(static_cast<memory::Category>(c))), std::int64_t{0});
  }
  return bytes;
}

/// Losses that are no numbers are null in JSON.
std::vector<double> read_numbers(const json& list) {
  std::vector<double> numbers;
  for (const json& item : list) {
    numbers.push_back(item.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                     : item.get<double>());
  }
  return numbers;
}

RankFigures read_rank(const json& stored, const json& memory_bytes, const Row& row,
                      const sharding::ModelShape& model) {
  RankFigures rank;
  rank.rank = stored.at("rank");
  rank.pid = stored.value("pid", std::int64_t{0});
  rank.persistent_bytes = stored.at("persistent_bytes");
  rank.sent_bytes = stored.at("sent_bytes");
  rank.formula_sent_bytes = stored.value("formula_sent_bytes", rank.sent_bytes);
  rank.calls = stored.at("calls");
  rank.exposed_ns = stored.at("wait_ns");
  rank.peer_wait_ns = stored.value("peer_wait_ns", 0.0);
  rank.comm_ns = stored.at("comm_ns");
  rank.overlap_ns = std::max(0.0, rank.comm_ns - rank.exposed_ns);
  rank.minor_faults = stored.value("minor_faults_per_step", -1.0);
  rank.system_allocations = stored.value("system_allocations_per_step", -1.0);
  rank.formula = sharding::formula_memory(row.formula, formula_input(row.config, model), rank.rank);
  train::MemoryReport& memory = rank.memory;
  memory.peak = stored.at("peak_bytes");
  memory.at_peak = read_categories(stored.at("at_peak"));
  memory.padding = stored.at("padding_bytes");
  memory.first_step_peak = stored.at("first_step_peak_bytes");
  memory.init_peak = stored.value("init_peak_bytes", std::int64_t{0});
  memory.rss_start = stored.value("rss_start_bytes", std::int64_t{0});
  memory.rss_peak = stored.value("rss_peak_bytes", std::int64_t{0});
  memory.pss_peak = stored.value("pss_peak_bytes", std::int64_t{0});
  // Older documents say it of the rank with the largest peak only.
  const json& place = stored.contains("peak_phase") ? stored : memory_bytes;
  memory.peak_phase = read_phase(place.at("peak_phase"));
  memory.peak_unit = place.at("peak_unit");
  return rank;
}

TrafficRow read_traffic(const json& stored) {
  TrafficRow row;
  row.rank = stored.at("rank");
  row.phase = read_phase(stored.at("phase"));
  row.kind = read_kind(stored.at("kind"));
  row.dtype = stored.value("dtype", "");
  row.calls = stored.at("calls");
  row.payload_bytes = stored.at("payload_bytes");
  row.algo_bytes = stored.at("algo_bytes");
  row.wire = {stored.value("wire_bytes", std::int64_t{-1}),
              stored.value("wire_received_bytes", std::int64_t{-1}),
              stored.value("staging_bytes", std::int64_t{-1})};
  if (!stored.at("formula_bytes").is_null()) {
    row.formula_bytes = stored.at("formula_bytes").get<std::int64_t>();
    row.formula_calls = stored.value("formula_calls", std::int64_t{0});
  }
  return row;
}

CallTotal read_call(const json& stored) {
  return {read_phase(stored.at("phase")),
          read_kind(stored.at("kind")),
          stored.at("label"),
          stored.at("calls"),
          stored.at("payload_bytes"),
          stored.at("algo_bytes"),
          stored.at("time_ns"),
          stored.value("exposed_ns", 0.0)};
}

void require_rank(int rank, int world_size, const Row& row) {
  if (rank >= 0 && rank < world_size) return;
  throw UserError::format("result {} names rank {} of {}", row.strategy(), rank, world_size);
}

void read_times(const json& result, Row& row) {
  const auto times = result.at("step_time_ns").at("times").get<std::vector<std::int64_t>>();
  if (times.empty() || *std::min_element(times.begin(), times.end()) <= 0) {
    throw UserError::format("result {} has no step times above 0", row.strategy());
  }
  row.step = summarize(times);
  if (result.contains("limit")) {
    const json& limit = result.at("limit");
    row.limit =
        train::LimitPieces{limit.at("forward_ns"), limit.at("backward_ns"),
                           limit.at("optimizer_ns_per_element"), limit.at("copied_bytes_per_ns")};
  }
  const json& phases = result.at("phase_time_ns");
  row.forward_ns = phases.at("forward");
  row.backward_ns = phases.at("backward");
  row.optimizer_ns = phases.at("optimizer");
  row.tokens_per_s = result.at("tokens_per_s");
}

void read_parity(const json& result, Row& row) {
  const json& stored = result.at("parity");
  row.judged = true;
  row.parity.ok = stored.at("ok");
  row.parity.bit_equal = stored.at("bit_equal");
  row.parity.first_tensor = stored.at("first_tensor");
  row.parity.detail = stored.at("detail");
  row.whole_batch = stored.contains("grad_max_rel_diff");
  row.gradient_max_rel_diff = stored.value("grad_max_rel_diff", 0.0);
  const std::string hash = result.at("parameter_hash");
  std::from_chars(hash.data(), hash.data() + hash.size(), row.parity.hash, 16);
}

}  // namespace

std::optional<comm::LinkModel> read_link(const json& text) {
  if (text == "none") return std::nullopt;
  return comm::LinkModel::parse(text.get<std::string>());
}

Row read_row(const json& result, const train::RunConfig& job, sharding::FormulaKind formula,
             const sharding::ModelShape& model) {
  Row row;
  row.config = job;
  row.formula = formula;
  row.repetitions = result.value("repetitions", 1);
  row.reason = result.at("error_message");
  if (!result.contains("memory_bytes")) {
    row.state = Row::State::kFailed;
    return row;
  }
  for (const json& rank : result.at("per_rank")) {
    require_rank(rank.at("rank"), job.world_size, row);
    row.ranks.push_back(read_rank(rank, result.at("memory_bytes"), row, model));
  }
  const int world_size = job.world_size;
  if (row.ranks.size() != static_cast<std::size_t>(world_size)) {
    throw UserError::format("result {} has {} ranks, not {}", row.strategy(), row.ranks.size(),
                            world_size);
  }
  for (const json& entry : result.at("traffic")) {
    row.traffic.push_back(read_traffic(entry));
    require_rank(row.traffic.back().rank, world_size, row);
  }
  for (const json& entry : result.value("calls", json::array())) {
    row.call_totals.push_back(read_call(entry));
  }
  row.traffic_error = result.value("traffic_error", "");
  row.losses = read_numbers(result.at("losses"));
  row.gradient_norms = read_numbers(result.at("grad_norms"));
  row.loss_scales = result.value("loss_scales", std::vector<double>{});
  row.skipped_steps = result.value("skipped_steps", std::vector<int>{});
  row.unused_parameters = result.value("unused_parameters", std::vector<std::string>{});
  if (result.contains("parity") && result.at("parity").contains("ok")) read_parity(result, row);
  if (row.judged && !row.parity.ok) {
    row.state = Row::State::kWrong;
  } else {
    row.reason.clear();
    read_times(result, row);
  }
  return row;
}

}  // namespace shardbench::bench

#include "common/train/result.h"

#include <nlohmann/json.hpp>

#include "common/train/limit.h"

// Between processes of one program results travel as binary JSON (CBOR): exact for every number,
// NaN included.

namespace shardbench::comm {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WireBytes, sent, received, staging)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrafficEntry, phase, kind, calls, payload_bytes, algo_bytes,
                                   wire)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CallRecord, sequence, kind, phase, label, dtype, payload_bytes,
                                   algo_bytes, issued_ns, finished_ns, peer_wait_ns, move_ns)
}  // namespace shardbench::comm

namespace shardbench::memory {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelinePoint, phase, unit, live)
}  // namespace shardbench::memory

namespace shardbench::ops {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TuneKey, pass, dtype, bias, accumulate, rows, in, out)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CandidateTime, candidate, ns, right)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TunedEntry, key, chosen, times)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TuningTable, mode, entries, note)
}  // namespace shardbench::ops

namespace shardbench::train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepRecord, loss, gradient_norm, loss_scale, skipped, step_ns,
                                   forward_ns, backward_ns, optimizer_ns, comm_ns, exposed_ns,
                                   peer_wait_ns, minor_faults, system_allocations)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitPieces, forward_ns, backward_ns, optimizer_ns_per_element,
                                   copied_bytes_per_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ParameterDigest, value, first_moment, second_moment,
                                   first_gradient)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryReport, peak_by_category, at_peak, between_steps, peak,
                                   first_step_peak, init_peak, peak_phase, peak_unit, padding,
                                   rss_start, rss_peak, pss_peak)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankResult, rank, pid, steps, shortest_rank, evaluation_losses,
                                   evaluation_steps, memory, traffic, traffic_steady, calls,
                                   digests, replicated, whole_values, buffer_digests,
                                   unused_parameters, timeline)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReferenceResult, steps, evaluation_losses, digests,
                                   parameter_names, whole_values, buffer_digests, buffer_names,
                                   whole_batch, gradient_max_rel_diff, gradient_worst_tensor,
                                   norm_rel_diff, parameter_rel_distance, gradients_close)

namespace {

std::string to_cbor(const nlohmann::json& json) {
  std::string text;
  nlohmann::json::to_cbor(json, text);
  return text;
}

}  // namespace

std::string serialize(const RankResult& result) { return to_cbor(result); }
RankResult deserialize(const std::string& text) {
  return nlohmann::json::from_cbor(text).get<RankResult>();
}
std::string serialize(const ReferenceResult& result) { return to_cbor(result); }
ReferenceResult deserialize_reference(const std::string& text) {
  return nlohmann::json::from_cbor(text).get<ReferenceResult>();
}
std::string serialize(const LimitPieces& pieces) { return to_cbor(pieces); }
LimitPieces deserialize_limit(const std::string& text) {
  return nlohmann::json::from_cbor(text).get<LimitPieces>();
}
std::string serialize(const ops::TuningTable& table) { return to_cbor(table); }
ops::TuningTable deserialize_tuning(const std::string& text) {
  return nlohmann::json::from_cbor(text).get<ops::TuningTable>();
}

}  // namespace shardbench::train

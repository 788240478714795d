#include <algorithm>
#include <vector>

#include "common/core/error.h"
#include "common/train/digest.h"
#include "common/train/result.h"

namespace shardbench::train {

namespace {

/// Digests of whole parameters: those of shards added up, or those every rank agrees on. Names the
/// first parameter on which replicas differ.
std::vector<ParameterDigest> join(const std::vector<RankResult>& ranks, int* first_difference) {
  std::vector<ParameterDigest> whole = ranks[0].digests;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    for (std::size_t p = 0; p < whole.size(); ++p) {
      const ParameterDigest& d = ranks[r].digests[p];
      if (!ranks[r].replicated) {
        whole[p].value += d.value;
        whole[p].first_moment += d.first_moment;
        whole[p].second_moment += d.second_moment;
        whole[p].first_gradient += d.first_gradient;
      } else if (*first_difference < 0 &&
                 (d.value != whole[p].value || d.first_moment != whole[p].first_moment ||
                  d.second_moment != whole[p].second_moment)) {
        *first_difference = static_cast<int>(p);
      }
    }
  }
  return whole;
}

std::uint64_t hash_of(const std::vector<ParameterDigest>& digests) {
  std::uint64_t hash = 0x5EED;
  for (const ParameterDigest& d : digests) {
    hash = fold(fold(fold(hash, d.value), d.first_moment), d.second_moment);
  }
  return hash;
}

bool same_bits(double a, double b) { return a == b || (a != a && b != b); }

Parity wrong(Parity parity, std::string tensor, std::string detail) {
  parity.first_tensor = std::move(tensor);
  parity.detail = std::move(detail);
  return parity;
}

}  // namespace

Parity judge(const StrategyRun& run, const ReferenceResult& reference) {
  Parity parity;
  SHARDBENCH_CHECK(!run.failure && !run.ranks.empty());
  int replica_difference = -1;
  const std::vector<ParameterDigest> digests = join(run.ranks, &replica_difference);
  SHARDBENCH_CHECK_EQ(digests.size(), reference.digests.size());
  parity.hash = hash_of(digests);

  const auto& names = reference.parameter_names;
  // Step 1 first: it tells a wrong gradient from what follows of it.
  for (std::size_t p = 0; p < digests.size(); ++p) {
    if (digests[p].first_gradient != reference.digests[p].first_gradient) {
      return wrong(parity, names[p], "its gradient of step 1 differs from the reference");
    }
  }
  if (replica_difference >= 0) {
    return wrong(parity, names[replica_difference], "its copies differ between ranks");
  }
  for (std::size_t s = 0; s < reference.steps.size(); ++s) {
    const StepRecord& own = run.ranks[0].steps.at(s);
    if (same_bits(own.loss, reference.steps[s].loss)) continue;
    // The loss of step s shows weights that went wrong before it; name the tensor if it still does.
    for (std::size_t p = 0; p < digests.size(); ++p) {
      if (digests[p].value != reference.digests[p].value) {
        return wrong(parity, names[p],
                     fmt::format("loss of step {} is {:.6f}, the reference has {:.6f}", s + 1,
                                 own.loss, reference.steps[s].loss));
      }
    }
    return wrong(parity, fmt::format("loss of step {}", s + 1), "losses differ");
  }
  for (std::size_t p = 0; p < digests.size(); ++p) {
    const ParameterDigest& own = digests[p];
    const ParameterDigest& expected = reference.digests[p];
    if (own.value != expected.value) {
      return wrong(parity, names[p], "its values after the last step differ");
    }
    if (own.first_moment != expected.first_moment || own.second_moment != expected.second_moment) {
      return wrong(parity, names[p], "its optimizer moments differ");
    }
  }
  for (const RankResult& rank : run.ranks) {
    for (std::size_t p = 0; p < rank.whole_values.size(); ++p) {
      if (rank.whole_values[p] == reference.whole_values.at(p)) continue;
      return wrong(parity, names[p],
                   fmt::format("the copy on rank {} is not what its owner has", rank.rank));
    }
    SHARDBENCH_CHECK_EQ(rank.buffer_digests.size(), reference.buffer_digests.size());
    for (std::size_t b = 0; b < rank.buffer_digests.size(); ++b) {
      if (rank.buffer_digests[b] == reference.buffer_digests[b]) continue;
      return wrong(parity, reference.buffer_names[b],
                   fmt::format("the buffer differs on rank {}", rank.rank));
    }
  }
  for (std::size_t e = 0; e < reference.evaluation_losses.size(); ++e) {
    if (!same_bits(run.ranks[0].evaluation_losses.at(e), reference.evaluation_losses[e])) {
      return wrong(parity, fmt::format("evaluation {}", e + 1), "evaluation losses differ");
    }
  }
  parity.bit_equal = true;
  parity.ok = reference.gradients_close;
  if (!parity.ok) {
    return wrong(
        parity,
        reference.gradient_worst_tensor.empty() ? "gradient norm" : reference.gradient_worst_tensor,
        fmt::format("step-1 gradients differ from the whole batch at once by {:.2g} "
                    "(bound {:.0e}), their norm by {:.2g} (bound {:.0e})",
                    reference.gradient_max_rel_diff, kGradientBound, reference.norm_rel_diff,
                    kNormBound));
  }
  return parity;
}

}  // namespace shardbench::train

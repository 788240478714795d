#include "common/ops/tuner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "common/core/error.h"
#include "common/ops/dtype.h"
#include "common/ops/linear_candidates.h"

namespace shardbench::ops {

namespace {

constexpr std::int64_t kPoolElements = std::int64_t{1} << 24;  // 64 MiB
constexpr std::int64_t kAlignElements = 32;                    // 64 bytes of any dtype
constexpr int kLeastRounds = 3;
constexpr double kOverrun = 4;

std::int64_t weight_elements(const TuneKey& key) { return key.in * key.out; }

using NowNs = std::function<std::int64_t()>;

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Random numbers, drawn once and repeated.
at::Tensor random(std::int64_t elements, DType dtype) {
  constexpr std::int64_t kDrawn = std::int64_t{1} << 20;
  const at::Tensor numbers = at::empty({elements}, at::TensorOptions().dtype(scalar_type(dtype)));
  const std::int64_t drawn = std::min(elements, kDrawn);
  at::Tensor first = numbers.narrow(0, 0, drawn);
  first.uniform_(-0.5, 0.5);
  for (std::int64_t at = drawn; at < elements; at += drawn) {
    const std::int64_t count = std::min(drawn, elements - at);
    numbers.narrow(0, at, count).copy_(first.narrow(0, 0, count));
  }
  return numbers;
}

/// Random weights in memory that no cache holds whole; each call hands out the next piece.
class Pool {
 public:
  Pool(std::int64_t elements, DType dtype) : memory_(random(elements, dtype)) {}

  at::Tensor next(const TuneKey& key) {
    const std::int64_t count = weight_elements(key);
    if (offset_ + count > memory_.numel()) offset_ = 0;
    const at::Tensor piece = memory_.narrow(0, offset_, count).view({key.out, key.in});
    offset_ += (count + kAlignElements - 1) / kAlignElements * kAlignElements;
    return piece;
  }

 private:
  at::Tensor memory_;
  std::int64_t offset_ = 0;
};

/// The distance from 1 to the next number of the dtype.
double epsilon(DType dtype) {
  if (dtype == DType::kBFloat16) return 0x1p-7;
  return dtype == DType::kFloat16 ? 0x1p-10 : std::numeric_limits<float>::epsilon();
}

double frobenius(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kFloat).norm().item<double>() : 0.0;
}

/// Inputs that all keys share: as large as the largest needs.
class Inputs {
 public:
  Inputs(const std::vector<TuneKey>& keys, DType dtype) {
    std::int64_t widest = 0;
    for (const TuneKey& key : keys) widest = std::max(widest, key.rows * std::max(key.in, key.out));
    rows_ = random(widest, dtype);
    other_ = random(widest, dtype);
  }
  at::Tensor rows(std::int64_t rows, std::int64_t width) const { return view(rows_, rows, width); }
  at::Tensor other(std::int64_t rows, std::int64_t width) const {
    return view(other_, rows, width);
  }

 private:
  static at::Tensor view(const at::Tensor& memory, std::int64_t rows, std::int64_t width) {
    return memory.narrow(0, 0, rows * width).view({rows, width});
  }
  at::Tensor rows_, other_;
};

/// One key while it is being measured.
class Contest {
 public:
  Contest(const TuneKey& key, const Inputs& inputs, const TunerOptions& options) : key_(key) {
    for (Candidate candidate : candidates_for(key)) {
      const bool there =
          options.available ? options.available(candidate) : available(candidate, key.dtype);
      if (there) times_.push_back({candidate, 0, true});
    }
    live_.assign(times_.size(), true);
    const bool forward = key.pass == Pass::kForward;
    rows_ = inputs.rows(key.rows, forward ? key.in : key.out);
    if (key.pass == Pass::kWeightGrad) x_ = inputs.other(key.rows, key.in);
    if (forward && key.bias) bias_ = inputs.other(1, key.out).view({key.out});
  }

  /// Compares every candidate's values with the plain one's.
  void check(Pool& pool, const RunCandidate& run) {
    const at::Tensor weight = pool.next(key_);
    at::Tensor plain = result_of(Candidate::kAten, weight, run);
    // Of sums of products: their errors grow with the norms of what is multiplied.
    double scale = frobenius(rows_) * frobenius(x_.defined() ? x_ : weight);
    if (bias_.defined()) scale += frobenius(bias_) * std::sqrt(static_cast<double>(key_.rows));
    if (key_.accumulate) scale += frobenius(weight);
    const double bound = 2 * epsilon(key_.dtype) * scale;
    for (std::size_t i = 1; i < times_.size(); ++i) {
      at::Tensor other = result_of(times_[i].candidate, weight, run);
      const bool same_shape = other.defined() && other.sizes() == plain.sizes();
      // Written so that NaN is wrong.
      times_[i].right = same_shape && frobenius(other.sub_(plain)) <= bound;
      live_[i] = times_[i].right;
    }
  }

  /// Times each live candidate once, another one first in each round.
  void time(Pool& pool, const RunCandidate& run, const NowNs& now_ns, int round) {
    for (std::size_t i = 0; i < times_.size(); ++i) {
      const std::size_t at = (i + static_cast<std::size_t>(round)) % times_.size();
      if (!live_[at]) continue;
      const PassArguments arguments = arguments_with(pool.next(key_));
      const std::int64_t start = now_ns();
      run(times_[at].candidate, key_, arguments);
      const std::int64_t ns = std::max<std::int64_t>(1, now_ns() - start);
      times_[at].ns = times_[at].ns == 0 ? ns : std::min(times_[at].ns, ns);
    }
  }

  /// A rank of another job can make anything slow for a while, so it takes several rounds to drop
  /// what is not slower by far.
  void drop_hopeless(int rounds) {
    const double hopeless = rounds > kLeastRounds ? 1.5 : (rounds > 1 ? 4.0 : 20.0);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < times_.size(); ++i) {
      if (live_[i]) best = std::min(best, times_[i].ns);
    }
    for (std::size_t i = 0; i < times_.size(); ++i) {
      live_[i] =
          live_[i] && static_cast<double>(times_[i].ns) <= hopeless * static_cast<double>(best);
    }
  }

  const TuneKey& key() const { return key_; }
  bool timed() const { return times_.front().ns > 0; }
  bool decided() const { return std::count(live_.begin(), live_.end(), true) < 2; }
  TunedEntry entry() const { return {key_, fastest(key_, times_), times_}; }

 private:
  PassArguments arguments_with(const at::Tensor& weight) const {
    if (key_.pass == Pass::kWeightGrad) return {rows_, x_, {}, weight};
    return {rows_, weight, bias_, {}};
  }

  at::Tensor result_of(Candidate candidate, const at::Tensor& weight, const RunCandidate& run) {
    if (key_.pass != Pass::kWeightGrad) return run(candidate, key_, arguments_with(weight));
    return run(candidate, key_, arguments_with(weight.clone()));
  }

  TuneKey key_;
  std::vector<CandidateTime> times_;
  std::vector<bool> live_;
  at::Tensor rows_, x_, bias_;
};

at::Tensor run_linear(Candidate candidate, const TuneKey& key, const PassArguments& arguments) {
  switch (key.pass) {
    case Pass::kForward:
      return linear_by(candidate, arguments.rows, arguments.other, arguments.bias);
    case Pass::kInputGrad:
      return linear_input_grad_by(candidate, arguments.rows, arguments.other);
    case Pass::kWeightGrad:
      linear_weight_grad_by(candidate, arguments.rows, arguments.other, arguments.target,
                            key.accumulate);
      return arguments.target;
  }
  return {};
}

}  // namespace

std::vector<TunedEntry> measure(const std::vector<TuneKey>& keys, const TunerOptions& options) {
  return measure(keys, options, run_linear);
}

std::vector<TunedEntry> measure(const std::vector<TuneKey>& keys, const TunerOptions& options,
                                const RunCandidate& run) {
  at::AutoDispatchBelowADInplaceOrView guard;
  std::int64_t largest = 0;
  for (const TuneKey& key : keys) largest = std::max(largest, weight_elements(key));
  if (largest == 0) return {};
  struct Material {
    Pool pool;
    Inputs inputs;
  };
  std::map<DType, Material> materials;  // a run has one dtype
  const auto material_of = [&](const TuneKey& key) -> Material& {
    auto found = materials.find(key.dtype);
    if (found == materials.end()) {
      found = materials
                  .emplace(key.dtype, Material{Pool(std::max(kPoolElements, largest), key.dtype),
                                               Inputs(keys, key.dtype)})
                  .first;
    }
    return found->second;
  };
  const NowNs now_ns = options.now_ns ? options.now_ns : NowNs(steady_ns);
  const std::int64_t start = now_ns();
  const auto spent_s = [&] { return 1e-9 * static_cast<double>(now_ns() - start); };
  std::vector<Contest> contests;
  for (const TuneKey& key : keys) {
    if (spent_s() > kOverrun / 2 * options.budget_s) break;
    Material& material = material_of(key);
    contests.emplace_back(key, material.inputs, options);
    contests.back().check(material.pool, run);
  }
  for (int round = 0; round < options.most_rounds; ++round) {
    if (round >= kLeastRounds && spent_s() > options.budget_s) break;
    for (Contest& contest : contests) {
      if (spent_s() > kOverrun * options.budget_s) break;
      if (contest.timed() && contest.decided()) continue;
      contest.time(material_of(contest.key()).pool, run, now_ns, round);
      contest.drop_hopeless(round + 1);
    }
  }
  std::vector<TunedEntry> entries;
  for (const Contest& contest : contests) {
    if (contest.timed()) entries.push_back(contest.entry());
  }
  return entries;
}

}  // namespace shardbench::ops

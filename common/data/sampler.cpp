#include "common/data/sampler.h"

#include <algorithm>
#include <bit>

#include "common/core/error.h"
#include "common/data/mix.h"

namespace shardbench::data {
namespace {

constexpr int kRounds = 6;

void check(const BatchShape& shape) {
  SHARDBENCH_CHECK(
      shape.world_size >= 1 && shape.batch >= 1 && shape.accumulation >= 1 && shape.seq >= 1,
      "world size {}, batch {}, accumulation {}, seq {}", shape.world_size, shape.batch,
      shape.accumulation, shape.seq);
}

}  // namespace

Permutation::Permutation(std::int64_t count, std::uint64_t key) : count_(count), key_(key) {
  SHARDBENCH_CHECK_GE(count, 1);
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  SHARDBENCH_CHECK(index >= 0 && index < count_, "{} of {}", index, count_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(index);
  // The network permutes [0, 4^half_bits), at most four times too large: walking on from values
  // outside ends inside after four steps in the mean, and stays one to one.
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t round_key = mix(key_, static_cast<std::uint64_t>(round));
      const std::uint64_t next = left ^ (mix(round_key, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= static_cast<std::uint64_t>(count_));
  return static_cast<std::int64_t>(value);
}

Sampler::Sampler(const TokenSource& source, std::uint64_t seed, const BatchShape& shape)
    : source_(source),
      seed_(seed),
      shape_(shape),
      windows_(source.windows(Split::kTraining, shape.seq)) {
  check(shape);
  SHARDBENCH_CHECK_GE(windows_, 1);
}

std::int64_t Sampler::sample_index(std::int64_t step, int micro, int rank, std::int64_t row) const {
  SHARDBENCH_CHECK(step >= 0 && micro >= 0 && micro < shape_.accumulation && rank >= 0 &&
                       rank < shape_.world_size && row >= 0 && row < shape_.batch,
                   "step {}, micro-batch {}, rank {}, row {}", step, micro, rank, row);
  return ((step * shape_.accumulation + micro) * shape_.world_size + rank) * shape_.batch + row;
}

std::int64_t Sampler::window_of(std::int64_t sample) const {
  const auto epoch = static_cast<std::uint64_t>(epoch_of(sample));
  return Permutation(windows_, mix(seed_, epoch))(sample % windows_);
}

void Sampler::fill(std::int64_t step, int micro, int rank, std::int64_t* tokens,
                   std::int64_t* targets) const {
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::int64_t window = window_of(sample_index(step, micro, rank, row));
    source_.read(Split::kTraining, window, shape_.seq, tokens + row * shape_.seq,
                 targets + row * shape_.seq);
  }
}

EvaluationPlan::EvaluationPlan(const TokenSource& source, const BatchShape& shape,
                               std::int64_t max_windows)
    : source_(source), shape_(shape), windows_(source.windows(Split::kHeldOut, shape.seq)) {
  check(shape);
  SHARDBENCH_CHECK_GE(max_windows, 0);
  if (max_windows > 0) windows_ = std::min(windows_, max_windows);
}

std::int64_t EvaluationPlan::rounds() const {
  const std::int64_t per_round = shape_.batch * shape_.world_size;
  return (windows_ + per_round - 1) / per_round;
}

sharding::Range EvaluationPlan::rows(std::int64_t round, int rank) const {
  SHARDBENCH_CHECK(round >= 0 && round < rounds(), "round {} of {}", round, rounds());
  const std::int64_t begin = round * shape_.batch * shape_.world_size;
  const std::int64_t end = std::min(windows_, begin + shape_.batch * shape_.world_size);
  const sharding::Range mine = sharding::slice_of(end - begin, shape_.world_size, rank);
  return {begin + mine.begin, begin + mine.end};
}

std::int64_t EvaluationPlan::fill(std::int64_t round, int rank, std::int64_t* tokens,
                                  std::int64_t* targets) const {
  const sharding::Range mine = rows(round, rank);
  for (std::int64_t row = 0; row < mine.size(); ++row) {
    source_.read(Split::kHeldOut, mine.begin + row, shape_.seq, tokens + row * shape_.seq,
                 targets + row * shape_.seq);
  }
  return mine.size();
}

}  // namespace shardbench::data

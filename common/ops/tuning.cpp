#include "common/ops/tuning.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/core/error.h"

namespace shardbench::ops {

namespace {

// Below this many multiplications the calls into oneDNN, some 10 us each, cost more than its
// kernels save.
constexpr std::int64_t kLeastProducts = std::int64_t{1} << 23;
// With fewer rows a product is bound by reading the weight, however it is done.
constexpr std::int64_t kLeastRows = 16;

// A measured choice must be this much faster than the fixed rule's.
constexpr double kMargin = 1.02;

struct HashKey {
  std::size_t operator()(const TuneKey& key) const {
    std::uint64_t hash = static_cast<std::uint64_t>(key.pass) |
                         static_cast<std::uint64_t>(key.dtype) << 8 |
                         std::uint64_t{key.bias} << 16 | std::uint64_t{key.accumulate} << 17;
    for (const std::int64_t size : {key.rows, key.in, key.out}) {
      hash = (hash ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct Choices {
  TuneMode mode = TuneMode::kFixed;
  std::unordered_map<TuneKey, Candidate, HashKey> entries;
};

std::atomic<const Choices*> current_choices{nullptr};  // null: the fixed rule
std::atomic<KeyRecorder*> current_recorder{nullptr};

/// Tables stay for good, since another thread may be reading the last one. Never destroyed.
void keep(std::unique_ptr<const Choices> choices) {
  static std::mutex& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::unique_ptr<const Choices>>;
  const std::lock_guard lock(mutex);
  current_choices.store(choices.get(), std::memory_order_release);
  kept.push_back(std::move(choices));
}

}  // namespace

std::string_view name_of(Pass pass) {
  constexpr std::string_view kNames[] = {"forward", "input_grad", "weight_grad"};
  return kNames[static_cast<int>(pass)];
}

std::string_view name_of(Candidate candidate) {
  constexpr std::string_view kNames[] = {"aten", "onednn_linear", "onednn_matmul", "widened",
                                         "openblas"};
  return kNames[static_cast<int>(candidate)];
}

std::string_view name_of(TuneMode mode) {
  constexpr std::string_view kNames[] = {"off", "fixed", "on"};
  return kNames[static_cast<int>(mode)];
}

std::vector<Candidate> candidates_for(const TuneKey& key) {
  std::vector<Candidate> candidates = {Candidate::kAten};
  // oneDNN has no fp64. fp16 follows the rule: without units for it the plain one would take all
  // the time there is for measuring.
  if (key.dtype != DType::kFloat32 && key.dtype != DType::kBFloat16) return candidates;
  if (key.rows <= 0 || key.in <= 0 || key.out <= 0) return candidates;
  // The inner product has no way to write into given memory.
  if (key.pass != Pass::kWeightGrad) candidates.push_back(Candidate::kOneDnnLinear);
  candidates.push_back(Candidate::kOneDnnMatmul);
  if (key.dtype == DType::kBFloat16) candidates.push_back(Candidate::kWidened);
  if (key.dtype == DType::kFloat32) candidates.push_back(Candidate::kOpenBlas);
  return candidates;
}

Candidate fixed_rule(const TuneKey& key) {
  // Products of fp16 without units for them are slower by a factor of ten and more in LibTorch.
  // bf16 it hands to oneDNN itself, but with a bias only by way of a copy.
  const bool empty = key.rows <= 0 || key.in <= 0 || key.out <= 0;
  if (key.dtype == DType::kFloat16 && !empty) return Candidate::kWidened;
  if (key.dtype == DType::kBFloat16 && key.bias && key.pass == Pass::kForward && !empty) {
    return Candidate::kOneDnnLinear;
  }
  if (key.dtype != DType::kFloat32 || key.rows < kLeastRows) return Candidate::kAten;
  // Sizes are those of memory that exists: two factors cannot overflow, and neither does this.
  if (key.rows * key.in < kLeastProducts / std::max<std::int64_t>(1, key.out)) {
    return Candidate::kAten;
  }
  switch (key.pass) {
    case Pass::kForward:
      return key.bias ? Candidate::kOneDnnLinear : Candidate::kOneDnnMatmul;
    case Pass::kInputGrad:
      return Candidate::kOneDnnMatmul;
    case Pass::kWeightGrad:
      return key.accumulate ? Candidate::kAten : Candidate::kOneDnnMatmul;
  }
  return Candidate::kAten;
}

Candidate fastest(const TuneKey& key, const std::vector<CandidateTime>& times) {
  const CandidateTime* best = nullptr;
  const CandidateTime* usual = nullptr;
  const Candidate rule = fixed_rule(key);
  for (const CandidateTime& time : times) {
    if (!time.right || time.ns <= 0) continue;
    if (best == nullptr || time.ns < best->ns) best = &time;
    if (time.candidate == rule) usual = &time;
  }
  if (best == nullptr) return Candidate::kAten;
  const bool close =
      usual != nullptr && static_cast<double>(usual->ns) <= kMargin * static_cast<double>(best->ns);
  return close ? rule : best->candidate;
}

void set_tuning(const TuningTable& table) {
  auto choices = std::make_unique<Choices>();
  choices->mode = table.mode;
  if (table.mode == TuneMode::kOn) {
    for (const TunedEntry& entry : table.entries) choices->entries[entry.key] = entry.chosen;
  }
  keep(std::move(choices));
}

TuneMode tuning_mode() {
  const Choices* choices = current_choices.load(std::memory_order_acquire);
  return choices == nullptr ? TuneMode::kFixed : choices->mode;
}

Candidate chosen(const TuneKey& key) {
  if (KeyRecorder* recorder = current_recorder.load(std::memory_order_relaxed)) recorder->add(key);
  const Choices* choices = current_choices.load(std::memory_order_acquire);
  if (choices == nullptr) return fixed_rule(key);
  if (choices->mode == TuneMode::kOff) return Candidate::kAten;
  const auto found = choices->entries.find(key);
  return found == choices->entries.end() ? fixed_rule(key) : found->second;
}

KeyRecorder::KeyRecorder() {
  KeyRecorder* none = nullptr;
  SHARDBENCH_CHECK(current_recorder.compare_exchange_strong(none, this),
                   "keys are being recorded already");
}

KeyRecorder::~KeyRecorder() { current_recorder.store(nullptr); }

std::vector<TuneKey> KeyRecorder::keys() const {
  const std::lock_guard lock(mutex_);
  return {keys_.begin(), keys_.end()};
}

void KeyRecorder::add(const TuneKey& key) {
  if (candidates_for(key).size() < 2) return;
  const std::lock_guard lock(mutex_);
  keys_.insert(key);
}

}  // namespace shardbench::ops

#pragma once

#include <compare>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/dtype.h"

namespace shardbench::ops {

/// Which part of an operation.
enum class Pass : std::uint8_t { kForward, kInputGrad, kWeightGrad };
std::string_view name_of(Pass pass);  ///< forward input_grad weight_grad

/// An implementation of one pass. All of them write where the plain one does and keep nothing.
enum class Candidate : std::uint8_t {
  kAten,          ///< what ATen calls by itself
  kOneDnnLinear,  ///< oneDNN's inner product, bias included
  kOneDnnMatmul,  ///< oneDNN's matrix product; adds to what is there where asked to
  kWidened,       ///< bf16 and fp16: in fp32, by blocks, for CPUs without units for them
  kOpenBlas,      ///< fp32: OpenBLAS's product, where one is installed; one thread
};
std::string_view name_of(Candidate candidate);  ///< aten onednn_linear ... openblas

/// What a choice is made for: one pass of a linear layer over `rows` rows, `in` wide before and
/// `out` wide after it. Rank, world size and strategy are no part of it, so all make one choice.
struct TuneKey {
  Pass pass = Pass::kForward;
  DType dtype = DType::kFloat32;
  bool bias = false;        ///< forward: with a bias
  bool accumulate = false;  ///< weight gradient: adds to what is there
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;

  auto operator<=>(const TuneKey&) const = default;
};

/// Time of one candidate on one key.
struct CandidateTime {
  Candidate candidate = Candidate::kAten;
  std::int64_t ns = 0;  ///< the shortest of several; 0: not timed
  bool right = true;    ///< its values are those of the plain one but for rounding
};

struct TunedEntry {
  TuneKey key;
  Candidate chosen = Candidate::kAten;
  std::vector<CandidateTime> times;
};

/// `--autotune`: the plain ATen call everywhere, a built-in rule, or what was measured.
enum class TuneMode : std::uint8_t { kOff, kFixed, kOn };
std::string_view name_of(TuneMode mode);  ///< off fixed on

/// The choices of one invocation. Keys that are not among the entries follow fixed_rule().
struct TuningTable {
  TuneMode mode = TuneMode::kFixed;
  std::vector<TunedEntry> entries;  ///< mode kOn only
  std::string note;                 ///< why nothing, or not all, was measured; else empty
};

/// All candidates worth measuring for the key, the plain one first.
std::vector<Candidate> candidates_for(const TuneKey& key);

/// The built-in choice: what has won by pass and size where it was measured (bench/micro).
Candidate fixed_rule(const TuneKey& key);

/// The fastest right candidate. The fixed rule's stays unless it is beaten by more than 2 %, so
/// that noise does not move bits. The plain one if none was timed.
Candidate fastest(const TuneKey& key, const std::vector<CandidateTime>& times);

/// Makes `table` the choices of this process from now on. Thread-safe; ranks that must agree bit
/// for bit have to set equal tables. Without any call, the fixed rule holds.
void set_tuning(const TuningTable& table);

/// The mode of the table in use; kFixed while there is none.
TuneMode tuning_mode();

/// The choice for a key: a look-up in a small hash map. Thread-safe.
Candidate chosen(const TuneKey& key);

/// While one lives, every key with more than one candidate that any thread asks `chosen` for is
/// collected. At most one at a time.
class KeyRecorder {
 public:
  KeyRecorder();
  ~KeyRecorder();
  KeyRecorder(const KeyRecorder&) = delete;
  KeyRecorder& operator=(const KeyRecorder&) = delete;

  std::vector<TuneKey> keys() const;  ///< sorted, each once
  void add(const TuneKey& key);

 private:
  mutable std::mutex mutex_;
  std::set<TuneKey> keys_;
};

}  // namespace shardbench::ops

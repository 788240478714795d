#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/recorder.h"
#include "tests/comm/elements.h"

namespace shardbench::comm::conformance {

/// What must equal the definitions of the collectives: each rank's bytes, or the bytes of all ranks
/// together, where ranks send on behalf of others.
enum class WireRule { kEveryRank, kSums };

/// What a case works with on one rank. It must issue the same calls on every rank whatever fails:
/// failures are only noted.
class Context {
 public:
  /// `wire` may be null: bytes are then not compared.
  Context(Communicator& communicator, const WireMatrix* wire, bool symmetric,
          WireRule rule = WireRule::kEveryRank)
      : comm(communicator), wire_(wire), symmetric_(symmetric), rule_(rule) {}

  Communicator& comm;

  int rank() const { return comm.rank(); }
  int world_size() const { return comm.world_size(); }
  bool symmetric() const { return symmetric_; }
  const WireMatrix* wire() const { return wire_; }
  WireRule wire_rule() const { return rule_; }

  /// Memory of the kind under test.
  TestBuffer buffer(DType dtype, std::int64_t count) { return {comm, symmetric_, dtype, count}; }

  /// A label that no other call has.
  CallTag tag(Phase phase = Phase::kForward) {
    label_ = fmt::format("call {}", ++calls_);
    return {label_, phase};
  }

  template <typename... Args>
  void expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (holds || failures_.size() >= kMostFailures) return;
    failures_.push_back(fmt::format("{}, {} memory, rank {} of {}: {}", case_,
                                    symmetric_ ? "symmetric" : "plain", rank(), world_size(),
                                    fmt::format(text, std::forward<Args>(args)...)));
  }

  /// Every element has the value that `expected` gives; a negative one: it was not written.
  void expect_values(const TestBuffer& buffer, DType dtype,
                     const std::function<double(std::int64_t)>& expected);

  void begin(std::string_view name) { case_ = name; }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  static constexpr std::size_t kMostFailures = 10;

  const WireMatrix* wire_;
  bool symmetric_;
  WireRule rule_;
  std::string_view case_;
  int calls_ = 0;
  std::string label_;
  std::vector<std::string> failures_;
};

inline void Context::expect_values(const TestBuffer& buffer, DType dtype,
                                   const std::function<double(std::int64_t)>& expected) {
  for (std::int64_t i = 0; i < buffer.count(); ++i) {
    const double want = expected(i);
    if (want < 0) {
      if (buffer.untouched(i)) continue;
      expect(false, "{}: element {} of {} ({}) was written", label_, i, buffer.count(),
             name_of(dtype));
    } else {
      if (buffer.get(i) == want) continue;
      expect(false, "{}: element {} of {} ({}) is {}, not {}", label_, i, buffer.count(),
             name_of(dtype), buffer.get(i), want);
    }
    return;
  }
}

/// What every rank puts in, reduced, before it is stored.
inline double reduced_value(DType dtype, ReduceOp op, int world_size, std::int64_t i) {
  std::vector<double> values;
  for (int peer = 0; peer < world_size; ++peer) values.push_back(test_value(peer, i));
  return reference_reduce(dtype, op, values);
}

}  // namespace shardbench::comm::conformance

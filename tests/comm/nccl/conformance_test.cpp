// The suite that every backend must pass, over the double: symmetric memory is device memory there,
// plain memory is the host's.
#include <gtest/gtest.h>

#include "common/comm/call_shape.h"
#include "tests/comm/conformance/suite.h"
#include "tests/comm/nccl/harness.h"

namespace shardbench::comm {
namespace {

/// A wait that also lets the host read device memory, as the suite does.
class HostReads : public Work::State {
 public:
  explicit HostReads(std::shared_ptr<Work::State> inner) : inner_(std::move(inner)) {}
  void wait(Goal, Deadline deadline) override { inner_->wait(Goal::kArrived, deadline); }
  bool reached(Goal goal) override { return inner_->reached(goal); }
  std::chrono::steady_clock::time_point last_arrival() const override {
    return inner_->last_arrival();
  }
  void poll() override { inner_->poll(); }
  WorkTiming timing() const override { return inner_->timing(); }

 private:
  std::shared_ptr<Work::State> inner_;
};

class HostReadable : public Decorator<Communicator> {
 public:
  using Decorator::Decorator;

 protected:
  Work after_issue(const CallShape&, CallTag, std::chrono::steady_clock::time_point,
                   Work work) override {
    return Work(std::make_shared<HostReads>(work.state()));
  }
};

/// All cases but those that cut payloads of many MiB into chunks (NCCL's affair; slow in the
/// double) and the one that NCCL breaks: its maximum may drop a NaN.
std::vector<conformance::Case> chosen_cases() {
  std::vector<conformance::Case> chosen;
  for (const auto* list :
       {&conformance::exact_cases(), &conformance::large_cases(), &conformance::shape_cases(),
        &conformance::flight_cases(), &conformance::wire_cases()}) {
    for (const conformance::Case& each : *list) {
      const bool left_out =
          each.name == "some MiB" || each.name == "many chunks" || each.name == "maximum keeps NaN";
      if (!left_out) chosen.push_back(each);
    }
  }
  return chosen;
}

/// World sizes by which an average divides without rounding: NCCL rounds to the element type before
/// it is added to what is there.
class NcclConformance : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(W, NcclConformance, ::testing::Values(1, 2, 4));

TEST_P(NcclConformance, Holds) {
  NcclDouble gpus(GetParam());
  run_nccl(gpus, GetParam(), [](NcclRank& rank) {
    HostReadable comm(rank.another());
    for (const bool symmetric : {true, false}) {
      conformance::Context context(comm, nullptr, symmetric);
      for (const conformance::Case& each : chosen_cases()) {
        context.begin(each.name);
        each.run(context);
        comm.quiesce();
      }
      for (const std::string& failure : context.failures()) ADD_FAILURE() << failure;
    }
  });
}

}  // namespace
}  // namespace shardbench::comm

#include "tests/comm/conformance/suite.h"

namespace shardbench::comm::conformance {

std::vector<std::string> run_suite(Communicator& comm, const WireMatrix* wire, WireRule rule) {
  std::vector<std::string> failures;
  for (const bool symmetric : {true, false}) {
    Context context(comm, wire, symmetric, rule);
    for (const auto* cases : {&exact_cases(), &order_cases(), &large_cases(), &shape_cases(),
                              &flight_cases(), &wire_cases()}) {
      for (const Case& each : *cases) {
        context.begin(each.name);
        each.run(context);
        comm.quiesce();
        comm.barrier(context.tag(Phase::kInit)).wait();
      }
    }
    failures.insert(failures.end(), context.failures().begin(), context.failures().end());
  }
  comm.quiesce();
  return failures;
}

}  // namespace shardbench::comm::conformance

// How often diff is right, on simulated times of a machine as machines are: its speed drifts, steps
// that follow each other resemble each other, each start of the ranks has its own offset, and now
// and then a step is much slower. Seeded: the counts are the same in every run.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "bench/diff/diff.h"
#include "tests/bench/diff/documents.h"

namespace shardbench::bench {
namespace {

constexpr int kTrials = 100;

/// Relative sizes; drift is what the speed does from one repetition to the next.
struct Noise {
  double drift = 0;          ///< stationary spread of the machine's speed
  double memory = 0.9;       ///< how much of it the next repetition inherits
  double repetition = 0.01;  ///< offset of each start of the ranks
  double step = 0.02;        ///< of a step
  double step_memory = 0.6;
  double spike_rate = 0.03;
  double spike = 0.5;  ///< a spike makes a step up to this part slower
};

class Machine {
 public:
  Machine(const Noise& noise, std::uint64_t seed) : noise_(noise), random_(seed) {
    speed_ = noise_.drift * normal();
  }

  /// Step times of one repetition of a job that takes 10 ms (`factor` longer), ns.
  std::vector<double> repetition(double factor, int steps) {
    speed_ = inherit(speed_, noise_.memory, noise_.drift);
    const double offset = noise_.repetition * normal();
    double step = noise_.step * normal();
    std::vector<double> times;
    for (int s = 0; s < steps; ++s) {
      step = inherit(step, noise_.step_memory, noise_.step);
      const double spike = uniform() < noise_.spike_rate ? noise_.spike * uniform() : 0;
      times.push_back(10e6 * factor * std::exp(speed_ + offset + step) * (1 + spike));
    }
    return times;
  }

 private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  /// Box and Muller.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * uniform());
  }
  double inherit(double value, double part, double spread) {
    return part * value + spread * std::sqrt(1 - part * part) * normal();
  }

  Noise noise_;
  std::mt19937_64 random_;
  double speed_ = 0;
};

struct Counts {
  int no_difference = 0, worse = 0, better = 0;
};

ResultFile file_with(const Groups& repetitions, const std::string& path) {
  return parse_results(path, document_with({result_with("ddp", repetitions)}).dump());
}

void count(Counts& counts, const ResultFile& before, const ResultFile& after) {
  DiffOptions options;
  options.metrics = choose_metrics({"step_time"}, false);
  const Verdict verdict = diff(before, after, options).lines.at(0).verdict;
  counts.no_difference += verdict == Verdict::kNoDifference ? 1 : 0;
  counts.worse += verdict == Verdict::kWorse ? 1 : 0;
  counts.better += verdict == Verdict::kBetter ? 1 : 0;
}

/// One file against another, measured one after the other.
Counts one_after_the_other(const Noise& noise, double factor, int repetitions, int steps) {
  Counts counts;
  for (int trial = 0; trial < kTrials; ++trial) {
    Machine machine(noise, 1000 + static_cast<std::uint64_t>(trial));
    Groups before;
    Groups after;
    for (int r = 0; r < repetitions; ++r) before.push_back(machine.repetition(1, steps));
    for (int r = 0; r < repetitions; ++r) after.push_back(machine.repetition(factor, steps));
    count(counts, file_with(before, "a"), file_with(after, "b"));
  }
  return counts;
}

/// Lists of files measured in turns.
Counts in_turns(const Noise& noise, double factor, int files, int steps) {
  Counts counts;
  for (int trial = 0; trial < kTrials; ++trial) {
    Machine machine(noise, 5000 + static_cast<std::uint64_t>(trial));
    std::vector<ResultFile> before;
    std::vector<ResultFile> after;
    for (int f = 0; f < files; ++f) {
      // Whoever begins changes from turn to turn, or a steady drift would favour one side.
      const bool old_first = f % 2 == 0;
      const std::vector<double> first = machine.repetition(old_first ? 1 : factor, steps);
      const std::vector<double> second = machine.repetition(old_first ? factor : 1, steps);
      before.push_back(file_with({old_first ? first : second}, "a"));
      after.push_back(file_with({old_first ? second : first}, "b"));
    }
    count(counts, pooled(before), pooled(after));
  }
  return counts;
}

TEST(Simulation, SteadyMachineOneFileAgainstAnother) {
  const Noise noise;
  const Counts same = one_after_the_other(noise, 1, 8, 15);
  EXPECT_GE(same.no_difference, 90) << same.worse << " worse, " << same.better << " better";
  const Counts slower = one_after_the_other(noise, 1.05, 8, 15);
  EXPECT_GE(slower.worse, 95) << slower.no_difference << " not found";
  EXPECT_EQ(slower.better, 0);
  const Counts faster = one_after_the_other(noise, 1 / 1.05, 8, 15);
  EXPECT_GE(faster.better, 95);
  EXPECT_EQ(faster.worse, 0);
}

TEST(Simulation, DriftingMachineInTurns) {
  Noise noise;
  noise.drift = 0.1;
  noise.memory = 0.99;
  const Counts same = in_turns(noise, 1, 12, 15);
  EXPECT_GE(same.no_difference, 90) << same.worse << " worse, " << same.better << " better";
  const Counts slower = in_turns(noise, 1.05, 12, 15);
  EXPECT_GE(slower.worse, 95) << slower.no_difference << " not found";
  EXPECT_EQ(slower.better, 0);
}

// Why turns are needed: on the same machine, one file after the other shows the drift as a change.
TEST(Simulation, DriftingMachineOneFileAgainstAnotherMisleads) {
  Noise noise;
  noise.drift = 0.1;
  noise.memory = 0.99;
  EXPECT_LT(one_after_the_other(noise, 1, 12, 15).no_difference, 80);
}

// Steps that resemble each other: taken one by one, they would promise far more than there is.
TEST(Simulation, OneLongRepetitionByBlocks) {
  Noise noise;
  noise.repetition = 0;
  const Counts same = one_after_the_other(noise, 1, 1, 100);
  EXPECT_GE(same.no_difference, 90) << same.worse << " worse, " << same.better << " better";
  const Counts slower = one_after_the_other(noise, 1.05, 1, 100);
  EXPECT_GE(slower.worse, 95) << slower.no_difference << " not found";
}

TEST(Simulation, ALargeChangeIsFoundOnABusyMachine) {
  Noise noise;
  noise.repetition = 0.04;
  noise.step = 0.08;
  noise.spike_rate = 0.15;
  noise.spike = 2;
  EXPECT_GE(one_after_the_other(noise, 1, 8, 15).no_difference, 90);
  EXPECT_GE(one_after_the_other(noise, 1.2, 8, 15).worse, 95);
}

}  // namespace
}  // namespace shardbench::bench

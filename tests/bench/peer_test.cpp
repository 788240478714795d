// Rows of other frameworks: which ones are asked for, when they run, how they are judged and shown.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/compare/document.h"
#include "bench/compare/explain.h"
#include "bench/compare/peer_json.h"
#include "bench/compare/read_document.h"
#include "bench/compare/report.h"
#include "bench/compare/screens.h"
#include "common/core/error.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

std::string refusal(const std::vector<std::string>& items,
                    const std::vector<std::string>& strategies) {
  try {
    choose_peers(items, strategies);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ChoosePeers, AFrameworkStandsForRowsWhoseCounterpartIsCompared) {
  EXPECT_THAT(choose_peers({"torch"}, {"ddp", "fsdp"}),
              ElementsAre("ddp", "fsdp1", "fsdp2", "fsdp2-kept"));
  EXPECT_THAT(choose_peers({"deepspeed"}, {"ddp", "zero3"}), ElementsAre("ds-zero3"));
  EXPECT_THAT(choose_peers({"deepspeed", "torch"}, {"zero1"}),
              ElementsAre("zero-optimizer", "ds-zero1"));
}

TEST(ChoosePeers, SingleRowsInTheOrderOfTables) {
  EXPECT_THAT(choose_peers({"fsdp2-blocks", "fsdp2"}, {"fsdp"}),
              ElementsAre("fsdp2", "fsdp2-blocks"));
  EXPECT_THAT(choose_peers({"fsdp2", "ddp"}, {"fsdp", "ddp"}), ElementsAre("ddp", "fsdp2"));
  EXPECT_THAT(choose_peers({"fsdp2", "torch"}, {"fsdp"}),
              ElementsAre("fsdp1", "fsdp2", "fsdp2-kept"));
  EXPECT_TRUE(choose_peers({}, {"ddp"}).empty());
}

TEST(ChoosePeers, RefusesWhatNobodyIs) {
  EXPECT_THAT(refusal({"fsdp3"}, {"fsdp"}), HasSubstr("--peers fsdp3: unknown; choose from torch"));
  EXPECT_THAT(refusal({"fsdp2"}, {"ddp"}), HasSubstr("add it to --strategy"));
  EXPECT_THAT(refusal({"deepspeed"}, {"ddp", "fsdp"}),
              HasSubstr("none of its rows stands beside ddp, fsdp"));
}

/// What fake peers say; losses of fake ranks are 5.0, 4.9, ...
PeerRun good_run(const train::RunConfig& config, std::int64_t step_ns = 250'000'000) {
  PeerRun run;
  run.versions = {{"torch", "9.9.9"}};
  for (int r = 0; r < config.world_size; ++r) {
    PeerRank rank;
    rank.rank = r;
    for (int s = 0; s < config.all_steps(); ++s) {
      rank.step_ns.push_back(s < config.warmup ? 9 * step_ns : step_ns + r);
      // The ranks' own losses differ; their mean is the reference's.
      rank.losses.push_back(5.0 - 0.1 * s + (r == 0 ? 0.25 : -0.25 / (config.world_size - 1)));
    }
    rank.rss_peak = (400 + r) << 20;
    rank.pss = (300 + r) << 20;
    run.ranks.push_back(rank);
  }
  return run;
}

std::vector<train::StepRecord> reference_steps(const train::RunConfig& config) {
  std::vector<train::StepRecord> steps;
  for (int s = 0; s < config.all_steps(); ++s) {
    steps.emplace_back();
    steps.back().loss = 5.0 - 0.1 * s;
  }
  return steps;
}

train::RunConfig small_config() { return config_for(small_request(), "fsdp", 2); }

TEST(PeerRow, TakesTheSlowestRankOfMeasuredSteps) {
  const train::RunConfig config = small_config();
  const PeerRow row = make_peer_row("fsdp2", config, {good_run(config)}, reference_steps(config));
  ASSERT_TRUE(row.right()) << row.reason;
  EXPECT_EQ(row.step.times.size(), static_cast<std::size_t>(config.steps));
  EXPECT_EQ(row.step.median, 250'000'001);
  EXPECT_EQ(row.rss_peak(), 401 << 20);
  EXPECT_EQ(row.pss(), 301 << 20);
  EXPECT_LT(row.loss_diff, 1e-12);
  EXPECT_DOUBLE_EQ(row.losses.back(), 5.0 - 0.1 * (config.all_steps() - 1));
  EXPECT_EQ(exit_code(row), 0);
}

/// The row when the loss of one step (from 0) is off by a factor.
PeerRow with_loss(int step, double factor) {
  const train::RunConfig config = small_config();
  PeerRun run = good_run(config);
  for (PeerRank& rank : run.ranks) rank.losses[static_cast<std::size_t>(step)] *= factor;
  return make_peer_row("fsdp2", config, {good_run(config), run}, reference_steps(config));
}

TEST(PeerRow, LossesOutsideTheirBoundsAreWrong) {
  EXPECT_TRUE(with_loss(0, 1 + 0.9e-5).right());
  EXPECT_FALSE(with_loss(0, 1 + 1.2e-5).right());
  EXPECT_TRUE(with_loss(3, 1 + 0.9e-4).right());
  const PeerRow wrong = with_loss(3, 1 - 1.2e-4);
  EXPECT_FALSE(wrong.right());
  EXPECT_EQ(wrong.worst_step, 4);
  EXPECT_THAT(verdict_text(wrong), HasSubstr("WRONG loss of step 4 is 4.699436"));
  EXPECT_EQ(exit_code(wrong), 1);
  EXPECT_FALSE(with_loss(5, std::nan("")).right());
}

TEST(PeerRow, ResultsThatLackSomethingCannotBeUsed) {
  const train::RunConfig config = small_config();
  const auto reason = [&](PeerRun run) {
    const PeerRow row = make_peer_row("ddp", config, {std::move(run)}, reference_steps(config));
    EXPECT_FALSE(row.right());
    EXPECT_EQ(exit_code(row), 1);
    return row.reason;
  };
  PeerRun run = good_run(config);
  run.ranks.pop_back();
  EXPECT_THAT(reason(run), HasSubstr("1 ranks, not 2"));
  run = good_run(config);
  run.ranks[1].losses.pop_back();
  EXPECT_THAT(reason(run), HasSubstr("rank 1 reports 12 times and 11 losses of 12 steps"));
  run = good_run(config);
  run.ranks[0].step_ns[4] = 0;
  EXPECT_THAT(reason(run), HasSubstr("not above 0"));
}

TEST(PeerRow, ExitCodesAreThoseOfOurRows) {
  const train::RunConfig config = small_config();
  using Reason = comm::AbortRecord::Reason;
  const auto code = [&](Reason reason, int signal = 0) {
    PeerRun run;
    run.failure.emplace();
    run.failure->reason = reason;
    run.failure->message = "planted";
    run.signal = signal;
    return exit_code(make_peer_row("ddp", config, {run}, {}));
  };
  EXPECT_EQ(code(Reason::kThrew), 1);
  EXPECT_EQ(code(Reason::kTimeout), 3);
  EXPECT_EQ(code(Reason::kLost), 3);
  EXPECT_EQ(code(Reason::kRequested, 15), 143);
}

/// Fakes of ours and of peers; `log` has what ran.
struct FakePeers {
  FakeEngine fake;
  std::function<void(PeerRun&, const PeerKind&)> spoil;

  Engine engine() {
    fake.spoil_reference = [](train::ReferenceRun& run) {
      run.result->steps = reference_steps(small_config());
    };
    Engine made = fake.engine();
    made.run_peer = [this](const PeerKind& kind, const train::RunConfig& config,
                           const train::Progress&) {
      fake.log.push_back("peer " + kind.name + "/" + std::to_string(config.world_size));
      PeerRun run = good_run(config);
      if (spoil) spoil(run, kind);
      return run;
    };
    return made;
  }
};

Request with_peers() {
  Request request = small_request();
  request.strategies = {"ddp", "fsdp"};
  request.peers = {"ddp", "fsdp2"};
  request.repetitions = 2;
  return request;
}

TEST(ComparePeers, RunInTurnsWithOurs) {
  FakePeers fakes;
  const Comparison comparison = compare(with_peers(), fake_registry(), fakes.engine());
  EXPECT_THAT(fakes.fake.log,
              ElementsAre("reference/2/ranks", "ddp/2", "fsdp/2", "peer ddp/2", "peer fsdp2/2",
                          "ddp/2", "fsdp/2", "peer ddp/2", "peer fsdp2/2"));
  EXPECT_EQ(runs_of(with_peers(), fake_registry()), 9);
  ASSERT_EQ(comparison.blocks[0].peers.size(), 2u);
  EXPECT_EQ(comparison.blocks[0].peers[1].repetitions, 2);
  EXPECT_EQ(exit_code(comparison), 0);
}

TEST(ComparePeers, AFailedOneIsNotRunAgainAndTheRestGoesOn) {
  FakePeers fakes;
  fakes.spoil = [](PeerRun& run, const PeerKind& kind) {
    if (kind.name != "ddp") return;
    run.ranks.clear();
    run.failure.emplace();
    run.failure->reason = comm::AbortRecord::Reason::kThrew;
    run.failure->message = "exit status 1: no such module";
  };
  const Comparison comparison = compare(with_peers(), fake_registry(), fakes.engine());
  EXPECT_EQ(std::count(fakes.fake.log.begin(), fakes.fake.log.end(), "peer ddp/2"), 1);
  EXPECT_EQ(std::count(fakes.fake.log.begin(), fakes.fake.log.end(), "peer fsdp2/2"), 2);
  EXPECT_EQ(exit_code(comparison), 1);
  const std::string screen = render_table(TableKind::kPeers, comparison);
  EXPECT_THAT(screen, HasSubstr("  PyTorch DDP"));
  EXPECT_THAT(screen, HasSubstr("FAILED exit status 1: no such module"));
}

TEST(ComparePeers, ASignalEndsAll) {
  FakePeers fakes;
  fakes.spoil = [](PeerRun& run, const PeerKind&) { run.signal = 2; };
  const Comparison comparison = compare(with_peers(), fake_registry(), fakes.engine());
  EXPECT_EQ(fakes.fake.log.back(), "peer ddp/2");
  EXPECT_EQ(exit_code(comparison), 130);
}

TEST(PeersTable, StandsUnderOursWithRatios) {
  FakePeers fakes;
  const Comparison comparison = compare(with_peers(), fake_registry(), fakes.engine());
  const std::string screen = render_table(TableKind::kPeers, comparison);
  // 250 over 100 ms; 401 over 200 and 301 over 150 MiB.
  EXPECT_THAT(screen, HasSubstr("\nddp             100.0 0.0            200.0         150.0  "));
  EXPECT_THAT(screen,
              HasSubstr("\n  PyTorch DDP   250.0 0.0      2.50  401.0   2.00  301.0   2.01 "));
  EXPECT_LT(screen.find("\nfsdp "), screen.find("\n  PyTorch FSDP2 "));
  for (std::size_t begin = 0, end; begin < screen.size(); begin = end + 1) {
    end = std::min(screen.find('\n', begin), screen.size());
    if (begin == 0) continue;  // the context line
    EXPECT_LE(end - begin, 90u) << screen.substr(begin, end - begin);
  }
  EXPECT_THAT(render_table(TableKind::kBrief, comparison), HasSubstr("  PyTorch FSDP2 "));
  EXPECT_THAT(render_table(TableKind::kFull, comparison), Not(HasSubstr("PyTorch")));
}

TEST(PeersTable, AWrongOneHasNoTime) {
  FakePeers fakes;
  fakes.spoil = [](PeerRun& run, const PeerKind& kind) {
    if (kind.name == "fsdp2") run.ranks[0].losses[2] += 1;
  };
  const Comparison comparison = compare(with_peers(), fake_registry(), fakes.engine());
  EXPECT_THAT(render_table(TableKind::kPeers, comparison),
              HasSubstr("  PyTorch FSDP2 WRONG loss of step 3"));
  const Json document = bench::document(comparison, {});
  const Json& peer = document["peers"][1];
  EXPECT_FALSE(peer.contains("step_time_ns"));
  EXPECT_FALSE(peer["per_rank"][0].contains("step_ns"));
  EXPECT_EQ(peer["parity"]["ok"], false);
  EXPECT_EQ(document["okay"], false);
}

TEST(PeersTable, IsExplained) {
  FakePeers fakes;
  const Comparison comparison = compare(with_peers(), fake_registry(), fakes.engine());
  const Screen screen = make_screen(TableKind::kPeers, comparison);
  std::string text;
  for (const Paragraph& paragraph : explain(comparison, screen)) text += paragraph.text + "\n";
  EXPECT_THAT(text, HasSubstr("PyTorch DDP over our ddp, median step ms: 250.0 / 100.0 = 2.50."));
  EXPECT_THAT(text, HasSubstr("Pss MiB: 301.0 / 150.0 = 2.01."));
  std::size_t shown = 0;
  for (const Column& column : screen.sections[0].table.columns()) shown += column.hidden ? 0 : 1;
  EXPECT_EQ(explain(comparison, screen).size(), shown + 1);
}

TEST(PeersDocument, HasRowsAndReadsBack) {
  FakePeers fakes;
  fakes.spoil = [](PeerRun& run, const PeerKind& kind) {
    if (kind.name == "fsdp2") run.ranks[0].losses[2] = std::nan("");
  };
  Request request = with_peers();
  request.worlds = {2, 3};
  const Comparison comparison = compare(request, fake_registry(), fakes.engine());
  const Json document = bench::document(comparison, {});
  ASSERT_EQ(document["peers"].size(), 4u);
  const Json& peer = document["peers"][0];
  EXPECT_EQ(peer["name"], "ddp/w2/b4");
  EXPECT_EQ(peer["framework"], "torch");
  EXPECT_EQ(peer["versions"]["torch"], "9.9.9");
  EXPECT_EQ(peer["step_time_ns"]["times"].size(), 20u);
  EXPECT_EQ(peer["per_rank"].size(), 2u);
  EXPECT_DOUBLE_EQ(peer["relative"]["time"].get<double>(), 1e8 / 250'000'001);
  const StoredResults again = read_document(document.dump(1), "r.json", fake_registry());
  EXPECT_EQ(again.comparison.request.peers, request.peers);
  for (const TableKind kind : {TableKind::kPeers, TableKind::kBrief}) {
    EXPECT_EQ(render_table(kind, again.comparison), render_table(kind, comparison));
  }
}

TEST(PeersDocument, RefusesWhatDoesNotFit) {
  FakePeers fakes;
  const Json good = bench::document(compare(with_peers(), fake_registry(), fakes.engine()), {});
  const auto error = [&](const std::function<void(Json&)>& spoil) {
    Json document = good;
    spoil(document["peers"][0]);
    try {
      read_document(document.dump(), "r.json", fake_registry());
    } catch (const UserError& refused) {
      return std::string(refused.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(error([](Json&) {}), "accepted");
  EXPECT_THAT(error([](Json& p) { p["peer"] = "fsdp9"; }), HasSubstr("fsdp9"));
  EXPECT_THAT(error([](Json& p) { p["world_size"] = 7; }), HasSubstr("beside no result"));
  EXPECT_THAT(error([](Json& p) { p.erase("losses"); }), HasSubstr("losses"));
  EXPECT_THAT(error([](Json& p) { p["step_time_ns"]["times"] = {0}; }), HasSubstr("above 0"));
}

}  // namespace
}  // namespace shardbench::bench

// Other frameworks under the strategies of compare and collectives; a script stands in for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> job(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments =
      small_job({"compare", "--strategy", "ddp,fsdp", "--steps", "2", "--warmup", "1",
                 "--deterministic", "--quiet"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// The losses of the job, as the stand-in wants them.
const std::string& losses() {
  static const std::string kLosses = [] {
    const Outcome outcome = run_shardbench(job({"--format", "json"}));
    const std::string list = json::parse(outcome.out)["results"][0]["losses"].dump();
    return list.substr(1, list.size() - 2);
  }();
  return kLosses;
}

RunOptions fake(const std::string& behaviour) {
  RunOptions options;
  options.environment = {"SHARDBENCH_PEERS_PYTHON=" SHARDBENCH_FAKE_PEER, "FAKE_PEER=" + behaviour,
                         "FAKE_LOSSES=" + losses()};
  return options;
}

Outcome run_fake(const std::string& behaviour, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--peers", "ddp"});
  const Outcome outcome = run_shardbench(job(std::move(more)), fake(behaviour));
  EXPECT_EQ(children_left(), 0);
  return outcome;
}

TEST(Peers, RightOnesStandUnderOurs) {
  const Outcome outcome = run_shardbench(
      job({"--peers", "torch", "--repetitions", "2", "--table", "peers"}), fake("right"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\n  PyTorch DDP "));
  EXPECT_THAT(outcome.out, HasSubstr("\n  PyTorch FSDP1 "));
  EXPECT_THAT(outcome.out, HasSubstr("\n  PyTorch FSDP2 kept "));
  EXPECT_THAT(outcome.out, HasSubstr(" 50.00 "));
  EXPECT_THAT(outcome.out, HasSubstr(" 1024 "));
  EXPECT_EQ(children_left(), 0);
}

TEST(Peers, StandInJsonAndInStoredResults) {
  const std::string path = ::testing::TempDir() + "peers.json";
  const Outcome outcome = run_fake("right", {"--out", path, "--format", "json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  ASSERT_EQ(document["peers"].size(), 1u);
  EXPECT_EQ(document["peers"][0]["counterpart"], "ddp");
  EXPECT_EQ(document["peers"][0]["step_time_ns"]["median"], 50'000'000);
  EXPECT_EQ(document["config"]["peers"], json({"ddp"}));
  const Outcome shown = run_shardbench({"compare", "--from", path, "--table", "peers"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("  PyTorch DDP "));
  const Outcome csv =
      run_shardbench({"compare", "--from", path, "--table", "peers", "--format", "csv"});
  EXPECT_THAT(csv.out, HasSubstr("times_faster"));
  std::remove(path.c_str());
}

TEST(Peers, WrongLossesGetNoTime) {
  const Outcome outcome = run_fake("wrong");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("  PyTorch DDP"));
  EXPECT_THAT(outcome.out, HasSubstr("WRONG loss of step 3 is 123.000000"));
  EXPECT_THAT(outcome.out, HasSubstr("\nfsdp "));
  EXPECT_THAT(outcome.err, HasSubstr("PyTorch DDP W=2: WRONG"));
}

TEST(Peers, ACrashSaysWhy) {
  const Outcome outcome = run_fake("crash");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("FAILED exit status 1: RuntimeError: planted"));
  EXPECT_THAT(outcome.out, HasSubstr("\nfsdp "));
}

TEST(Peers, WhatIsNotInstalledSaysHow) {
  EXPECT_THAT(run_fake("lacking").err, HasSubstr("setup.sh torch installs it"));
  RunOptions options;
  options.environment = {"SHARDBENCH_PEERS_PYTHON=/no/such/python"};
  const Outcome outcome = run_shardbench(job({"--peers", "ddp"}), options);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("/no/such/python is not there"));
}

TEST(Peers, ALostOneGivesThree) {
  const Outcome outcome = run_fake("killed");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("killed by signal 9"));
}

TEST(Peers, AHangingOneIsEndedWithAllItStarted) {
  const Outcome outcome = run_fake("hang", {"--timeout", "2"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("FAILED no step within --timeout"));
}

TEST(Peers, GarbageAndNothingAreNoResult) {
  for (const char* behaviour : {"garbage", "silent"}) {
    const Outcome outcome = run_fake(behaviour);
    EXPECT_EQ(outcome.exit_code, 1) << behaviour;
    EXPECT_THAT(outcome.err, HasSubstr("its result cannot be used")) << behaviour;
  }
}

TEST(Peers, ASignalEndsThemToo) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunOptions options = fake("hang");
    options.signal = signal;
    options.signal_after_s = 8;
    const Outcome outcome = run_shardbench(job({"--peers", "ddp"}), options);
    EXPECT_EQ(outcome.exit_code, 128 + signal) << outcome.err;
    EXPECT_EQ(children_left(), 0);
  }
}

TEST(Peers, RequestsThatCannotBeMet) {
  const auto refused = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = run_shardbench(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refused(job({"--peers", "fsdp3"})), HasSubstr("--peers fsdp3: unknown"));
  EXPECT_THAT(refused(job({"--peers", "ddp,ddp"})), HasSubstr("--peers"));
  EXPECT_THAT(refused(job({"--peers", ""})), HasSubstr("--peers"));
  EXPECT_THAT(refused(job({"--peers", "ds-zero3"})), HasSubstr("add it to --strategy"));
  EXPECT_THAT(refused(job({"--table", "peers"})), HasSubstr("give --peers"));
  EXPECT_THAT(refused({"compare", "--peers", "ddp", "--model", "convnet", "--data", "synthetic"}),
              HasSubstr("convnet"));
  EXPECT_THAT(refused({"collectives", "--peers", "nccl"}), HasSubstr("gloo, mpi"));
  EXPECT_THAT(refused({"collectives", "--peers", "gloo", "-d", "bf16"}), HasSubstr("fp32"));
}

TEST(Peers, ADryRunNamesThem) {
  const Outcome outcome = run_shardbench(job({"--peers", "torch", "--dry-run"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("4 peers (ddp, fsdp1, fsdp2, fsdp2-kept)"));
  EXPECT_THAT(run_shardbench({"compare", "--list"}).out,
              HasSubstr("PyTorch FSDP2, under our fsdp"));
}

TEST(Peers, CollectivesBesideGloo) {
  const auto run = [](const char* behaviour, const char* format) {
    const Outcome outcome =
        run_shardbench({"collectives", "--peers", "gloo", "-b", "64", "-e", "4096", "-n", "2",
                        "--timeout", "5", "--quiet", "--format", format},
                       fake(behaviour));
    EXPECT_EQ(children_left(), 0);
    return outcome;
  };
  const Outcome right = run("right", "json");
  EXPECT_EQ(right.exit_code, 0) << right.err;
  const json document = json::parse(right.out);
  EXPECT_EQ(document["collectives"].size(), 15u);
  ASSERT_EQ(document["peers"][0]["collectives"].size(), 15u);
  EXPECT_EQ(document["peers"][0]["collectives"][0]["time_us"], 1000);
  EXPECT_EQ(document["peers"][0]["title"], "a fake");
  EXPECT_THAT(run("right", "table").out, HasSubstr("# gloo    a fake\n"));
  const Outcome wrong = run("wrong", "table");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("WRONG"));
  EXPECT_EQ(run("hang", "table").exit_code, 3);
  const Outcome crashed = run("crash", "csv");
  EXPECT_EQ(crashed.exit_code, 1);
  EXPECT_THAT(crashed.err, HasSubstr("gloo: exit status 1: RuntimeError: planted"));
  EXPECT_THAT(crashed.out, HasSubstr("ours_over_gloo"));
}

TEST(Peers, CollectivesBesideMpi) {
  const Outcome outcome = run_shardbench({"collectives", "--peers", "mpi", "-b", "64", "-e", "4096",
                                          "-n", "2", "--quiet", "--format", "json"});
  EXPECT_EQ(children_left(), 0);
  if (outcome.err.find("no mpirun with its mpi_collectives") != std::string::npos) {
    GTEST_SKIP() << "no MPI here";
  }
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  for (const json& row : document["peers"][0]["collectives"]) {
    EXPECT_GT(row["bus_bw"], 0);
    EXPECT_EQ(row["nwrong"], 0);
  }
}

/// The real ones, where bench/peers/setup.sh has installed them.
TEST(Peers, PyTorchComesToTheSameLosses) {
  const std::string python = SHARDBENCH_PEERS_BIN "/python";
  if (!std::filesystem::exists(python)) GTEST_SKIP() << "no " << python;
  RunOptions options;
  options.environment = {"SHARDBENCH_PEERS_PYTHON=" + python};
  for (const char* model : {"gpt2-nano", "llama-nano", "mlp"}) {
    const bool first = std::string(model) == "gpt2-nano";
    const Outcome outcome = run_shardbench({"compare",
                                            "--model",
                                            model,
                                            "--data",
                                            "synthetic",
                                            "--strategy",
                                            "ddp,zero1,fsdp",
                                            "--peers",
                                            first ? "torch" : "ddp,fsdp2",
                                            "--layers",
                                            "2",
                                            "--hidden",
                                            "48",
                                            "--seq",
                                            "16",
                                            "--batch",
                                            "2",
                                            "--grad-accum",
                                            "2",
                                            "--max-norm",
                                            "1",
                                            "--steps",
                                            "3",
                                            "--quiet",
                                            "--format",
                                            "json"},
                                           options);
    EXPECT_EQ(outcome.exit_code, 0) << model << outcome.err;
    for (const json& peer : json::parse(outcome.out)["peers"]) {
      EXPECT_LT(peer["parity"]["max_loss_rel_diff"], 1e-5) << model << peer["name"];
    }
    EXPECT_EQ(children_left(), 0);
  }
}

}  // namespace
}  // namespace shardbench::cli

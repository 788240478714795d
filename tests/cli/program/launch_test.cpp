// The built program as the ranks of mpirun and torchrun: same results as with ranks of its own, one
// clear line for what goes wrong, nothing left running.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/cli/program/process.h"

namespace shardbench::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The command before the program, empty where this machine has no such launcher.
Words launcher(const std::string& name, int ranks) {
  const std::string count = std::to_string(ranks);
  if (name == "torchrun") {
    const std::string program = std::string(SHARDBENCH_PEERS_BIN) + "/torchrun";
    if (!std::filesystem::exists(program)) return {};
    return {program, "--standalone", "--nproc_per_node", count, "--no-python"};
  }
  const std::string built = SHARDBENCH_MPI_BUILT;
  if (("," + built + ",").find("," + name + ",") == std::string::npos) return {};
  return {"bash", SHARDBENCH_MPIRUN, name, count};
}

#define NEED_LAUNCHER(words, name) \
  if ((words).empty()) GTEST_SKIP() << (name) << " is not installed (or not built)"

Outcome run_under(const Words& words, const Words& arguments, const Words& environment = {}) {
  RunOptions options;
  options.launcher = words;
  options.environment = environment;
  return run_shardbench(arguments, options);
}

/// The last line that shardbench itself has written.
Words own_lines(const std::string& err) {
  Words lines;
  std::size_t begin = 0;
  while (begin < err.size()) {
    std::size_t end = err.find('\n', begin);
    if (end == std::string::npos) end = err.size();
    const std::string line = err.substr(begin, end - begin);
    if (line.rfind("shardbench: ", 0) == 0) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

Words compare_job(const std::string& model) {
  Words job = {"compare",    "--model", model,      "--strategy", "ddp,zero1,zero2,zero3,fsdp",
               "--steps",    "2",       "--warmup", "1",          "--quiet",
               "--autotune", "fixed",   "--format", "json",       "--data",
               "synthetic"};
  if (model == "convnet") return joined(job, {"--batch", "2", "--layers", "2", "--hidden", "16"});
  if (model != "mlp") job = joined(job, {"--heads", "4"});
  if (model == "llama-nano") job = joined(job, {"--kv-heads", "2"});
  return joined(job, {"--layers", "2", "--hidden", "32", "--vocab", "64", "--context", "16",
                      "--seq", "16", "--batch", "2"});
}

json document_in(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

/// Under a launcher: name, ranks, model.
class LaunchedParity : public ::testing::TestWithParam<std::tuple<std::string, int, std::string>> {
};

/// The job over MPI, right by its own reference, and over shared memory: the same bits and bytes.
void expect_bits_of_shared_memory(const Words& words, int ranks, const Words& job) {
  const json launched = document_in(run_under(words, joined(job, {"--backend", "mpi"})));
  const json forked = document_in(run_shardbench(joined(job, {"--world", std::to_string(ranks)})));
  ASSERT_TRUE(launched.is_object() && forked.is_object());
  EXPECT_EQ(launched["context"]["backend"], "mpi");
  EXPECT_EQ(launched["okay"], true);
  ASSERT_EQ(launched["results"].size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    const json& ours = launched["results"][i];
    EXPECT_EQ(ours["parity"]["bit_equal"], true) << ours["name"];
    EXPECT_EQ(ours["parameter_hash"], forked["results"][i]["parameter_hash"]) << ours["name"];
    EXPECT_EQ(ours["losses"], forked["results"][i]["losses"]) << ours["name"];
    ASSERT_EQ(ours["traffic"].size(), forked["results"][i]["traffic"].size());
    for (std::size_t t = 0; t < ours["traffic"].size(); ++t) {
      for (const char* key : {"rank", "kind", "calls", "wire_bytes", "wire_received_bytes"}) {
        EXPECT_EQ(ours["traffic"][t][key], forked["results"][i]["traffic"][t][key]) << key;
      }
    }
  }
}

TEST_P(LaunchedParity, MpiGivesTheBitsOfSharedMemory) {
  const auto [name, ranks, model] = GetParam();
  const Words words = launcher(name, ranks);
  NEED_LAUNCHER(words, name);
  expect_bits_of_shared_memory(words, ranks, compare_job(model));
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, LaunchedParity,
    ::testing::Combine(::testing::Values("openmpi", "mpich"), ::testing::Values(2, 3, 4),
                       ::testing::Values("mlp", "gpt2-nano", "convnet", "llama-nano")),
    [](const auto& of) {
      std::string text = std::get<0>(of.param) + "W" + std::to_string(std::get<1>(of.param)) +
                         std::get<2>(of.param);
      text.erase(std::remove(text.begin(), text.end(), '-'), text.end());
      return text;
    });

class Launchers : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Launchers, ::testing::Values("openmpi", "mpich", "torchrun"),
                         [](const auto& of) { return of.param; });

TEST_P(Launchers, RanksOfOneHostFindTheirSharedMemory) {
  const Words words = launcher(GetParam(), 3);
  NEED_LAUNCHER(words, GetParam());
  const json launched = document_in(run_under(words, compare_job("mlp")));
  const json forked = document_in(run_shardbench(joined(compare_job("mlp"), {"--world", "3"})));
  ASSERT_TRUE(launched.is_object() && forked.is_object());
  EXPECT_EQ(launched["context"]["backend"], "shm");
  EXPECT_EQ(launched["context"]["world_size"], json({3}));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(launched["results"][i]["parameter_hash"], forked["results"][i]["parameter_hash"]);
  }
}

TEST_P(Launchers, TwoJobsAtTheSameMoment) {
  const Words words = launcher(GetParam(), 2);
  NEED_LAUNCHER(words, GetParam());
  std::vector<Outcome> outcomes(2);
  std::vector<std::thread> threads;
  for (Outcome& outcome : outcomes) {
    threads.emplace_back([&] { outcome = run_under(words, compare_job("mlp")); });
  }
  for (std::thread& thread : threads) thread.join();
  const json first = document_in(outcomes[0]);
  const json second = document_in(outcomes[1]);
  ASSERT_TRUE(first.is_object() && second.is_object());
  EXPECT_EQ(first["results"][0]["parameter_hash"], second["results"][0]["parameter_hash"]);
}

TEST_P(Launchers, AKilledRankEndsTheJobAndIsNamed) {
  Words words = launcher(GetParam(), 2);
  NEED_LAUNCHER(words, GetParam());
  // MPICH's mpirun kills all others at once, on a busy machine before rank 0 has said a word.
  if (GetParam() == "mpich") words.push_back("-disable-auto-cleanup");
  const Outcome outcome =
      run_under(words, joined(compare_job("mlp"), {"--inject", "kill@1,2,backward"}));
  EXPECT_NE(outcome.exit_code, 0);
  const Words lines = own_lines(outcome.err);
  ASSERT_FALSE(lines.empty()) << outcome.err;
  EXPECT_THAT(lines.front(), HasSubstr("rank 1 has gone without a word (killed or crashed"));
  EXPECT_THAT(lines.front(), HasSubstr("last seen in phase backward"));
  EXPECT_EQ(lines.size(), 1u) << outcome.err;
  EXPECT_EQ(children_left(), 0);
}

class MpiLaunchers : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, MpiLaunchers, ::testing::Values("openmpi", "mpich"),
                         [](const auto& of) { return of.param; });

TEST_P(MpiLaunchers, ARankThatThrowsEndsTheJobAndIsNamed) {
  const Words words = launcher(GetParam(), 2);
  NEED_LAUNCHER(words, GetParam());
  const Outcome outcome = run_under(
      words, joined(small_job({"run", "--steps", "3"}), {"--inject", "throw@1,2,forward"}));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("fault injected by --inject throw"));
  EXPECT_EQ(children_left(), 0);
}

TEST_P(MpiLaunchers, LowerPrecisionGivesTheBitsOfSharedMemory) {
  const Words words = launcher(GetParam(), 3);
  NEED_LAUNCHER(words, GetParam());
  for (const Words& recipe :
       {Words{"--dtype", "bf16"}, Words{"--dtype", "bf16", "--reduce-dtype", "bf16"},
        Words{"--dtype", "fp16", "--loss-scale", "1024"}}) {
    expect_bits_of_shared_memory(words, 3, joined(compare_job("gpt2-nano"), recipe));
  }
}

TEST_P(MpiLaunchers, BadInputIsOneLine) {
  const Words words = launcher(GetParam(), 2);
  NEED_LAUNCHER(words, GetParam());
  const Outcome outcome = run_under(words, {"compare", "--world", "3", "--quiet"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_EQ(own_lines(outcome.err),
            Words{"shardbench: --world 3: the launcher started 2 ranks; nearest: 2"});
  EXPECT_EQ(outcome.out, "");
}

TEST_P(MpiLaunchers, CollectivesAreExact) {
  const Words words = launcher(GetParam(), 3);
  NEED_LAUNCHER(words, GetParam());
  const json document = document_in(
      run_under(words, {"collectives", "-b", "8", "-e", "64K", "-d", "fp32,bf16,int64", "-n", "3",
                        "-c", "2", "--backend", "mpi", "--quiet", "--format", "json"}));
  ASSERT_TRUE(document.is_object());
  EXPECT_EQ(document["context"]["backend"], "mpi");
}

TEST(Mpirun, OptionsThatDifferAreNamed) {
  const Words words = launcher("openmpi", 1);
  NEED_LAUNCHER(words, "openmpi");
  Words arguments = joined(compare_job("mlp"), {"--lr", "1e-3"});
  arguments = joined(arguments, {":", "-n", "1", SHARDBENCH_PROGRAM});
  arguments = joined(arguments, joined(compare_job("mlp"), {"--lr", "2e-3"}));
  const Outcome outcome = run_under(words, arguments);
  EXPECT_NE(outcome.exit_code, 0);
  const Words lines = own_lines(outcome.err);
  ASSERT_EQ(lines.size(), 1u) << outcome.err;
  EXPECT_THAT(lines[0], HasSubstr("ranks differ in --lr: '1e-3' on rank 0, '2e-3' on rank 1"));
}

TEST(Mpirun, NcclWithoutADeviceIsRefused) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
  const Words words = launcher("openmpi", 2);
  NEED_LAUNCHER(words, "openmpi");
  const Outcome outcome = run_under(words, joined(compare_job("mlp"), {"--backend", "nccl"}));
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(own_lines(outcome.err).size(), 1u) << outcome.err;
}

TEST_P(MpiLaunchers, EveryRankWritesItsLog) {
  const Words words = launcher(GetParam(), 2);
  NEED_LAUNCHER(words, GetParam());
  std::string folder = (std::filesystem::temp_directory_path() / "rank_logs_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const Outcome outcome =
      run_under(words, small_job({"run", "--steps", "3", "--quiet", "--rank-logs", folder}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (int rank = 0; rank < 2; ++rank) {
    std::ifstream file(folder + "/rank-" + std::to_string(rank) + ".log");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_THAT(text, HasSubstr(" rank " + std::to_string(rank) + " of 2 on "));
    EXPECT_THAT(text, HasSubstr("\n3 "));
    EXPECT_THAT(text, HasSubstr("# done\n"));
  }
  std::filesystem::remove_all(folder);
}

TEST(NoLauncher, WideBackendsAreRefused) {
  for (const char* backend : {"mpi", "nccl"}) {
    const Outcome outcome = run_shardbench({"compare", "--backend", backend, "--quiet"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("needs ranks that a launcher starts: mpirun -n 2"));
  }
}

TEST(Torchrun, MpiIsRefused) {
  const Words words = launcher("torchrun", 2);
  NEED_LAUNCHER(words, "torchrun");
  const Outcome outcome = run_under(words, joined(compare_job("mlp"), {"--backend", "mpi"}));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("--backend mpi: the ranks were not started by MPI"));
}

// torchrun's variables, set by hand.

/// A free port, and the socket that keeps it busy.
struct BusyPort {
  int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  int port = 0;
  BusyPort() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    socklen_t size = sizeof(any);
    ::bind(socket, address, size);
    ::listen(socket, 1);
    ::getsockname(socket, address, &size);
    port = ntohs(any.sin_port);
  }
  ~BusyPort() { close(); }
  void close() {
    if (socket >= 0) ::close(std::exchange(socket, -1));
  }
};

Words by_hand(int rank, int world_size, const std::string& address, int port) {
  return {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world_size),
          "MASTER_ADDR=" + address, "MASTER_PORT=" + std::to_string(port)};
}

TEST(ByHand, TwoRanksMeet) {
  BusyPort port;
  port.close();
  std::vector<Outcome> outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      outcomes[static_cast<std::size_t>(rank)] =
          run_under({}, compare_job("mlp"), by_hand(rank, 2, "127.0.0.1", port.port));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(document_in(outcomes[0]).is_object());
  EXPECT_EQ(outcomes[1].exit_code, 0) << outcomes[1].err;
  EXPECT_EQ(outcomes[1].out, "");
}

TEST(ByHand, ARankThatNeverJoinsIsNamed) {
  BusyPort port;
  port.close();
  const Outcome outcome = run_under({}, joined(compare_job("mlp"), {"--timeout", "1"}),
                                    by_hand(0, 2, "127.0.0.1", port.port));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(own_lines(outcome.err),
            Words{"shardbench: 1 of 2 ranks did not join within 1 s: rank 1 missing"});
}

TEST(ByHand, ABusyPortIsNamed) {
  const BusyPort port;
  const Outcome outcome = run_under({}, joined(compare_job("mlp"), {"--timeout", "1"}),
                                    by_hand(0, 2, "127.0.0.1", port.port));
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(own_lines(outcome.err).size(), 1u) << outcome.err;
  EXPECT_THAT(own_lines(outcome.err)[0], HasSubstr("is the port busy?"));
}

TEST(ByHand, AWrongAddressIsNamed) {
  BusyPort port;
  port.close();
  const Outcome outcome = run_under({}, joined(compare_job("mlp"), {"--timeout", "1"}),
                                    by_hand(1, 2, "127.0.0.1", port.port));
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(own_lines(outcome.err).size(), 1u) << outcome.err;
  EXPECT_THAT(own_lines(outcome.err)[0],
              HasSubstr("rank 1 cannot reach the store at MASTER_ADDR:MASTER_PORT 127.0.0.1:"));
}

/// Where the library of the nccl backend is not built it says so, else that there is no device.
TEST(ByHand, CudaWithoutADeviceIsRefused) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
  for (const char* command : {"compare", "run"}) {
    BusyPort port;
    port.close();
    const Outcome outcome = run_under(
        {},
        {command, "--device", "cuda", "--backend", "nccl", "--model", "mlp", "--data", "synthetic"},
        by_hand(0, 1, "127.0.0.1", port.port));
    EXPECT_EQ(outcome.exit_code, 2);
    ASSERT_EQ(own_lines(outcome.err).size(), 1u) << outcome.err;
    EXPECT_THAT(own_lines(outcome.err)[0],
                ::testing::AnyOf(HasSubstr("--backend nccl: this build has no GPU library"),
                                 HasSubstr("no CUDA device"), HasSubstr("cannot open")));
  }
}

TEST(ByHand, AMissingVariableIsNamed) {
  const Outcome outcome = run_under({}, compare_job("mlp"), {"RANK=0", "WORLD_SIZE=2"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("RANK is set but MASTER_ADDR is not"));
}

}  // namespace
}  // namespace shardbench::cli

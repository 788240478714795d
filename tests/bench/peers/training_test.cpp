// Jobs that peers cannot do are refused by name; what stands in for a framework is handled.

#include "bench/peers/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "common/core/safetensors.h"
#include "common/models/config.h"
#include "tests/bench/fake_engine.h"

namespace shardbench::bench {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void(Request&)>& change) {
  Request request = small_request();
  change(request);
  try {
    refuse_unknown_to_peers(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RefusePeers, ByName) {
  EXPECT_EQ(refusal([](Request&) {}), "accepted");
  EXPECT_EQ(refusal([](Request& r) { r.base.model = models::preset("llama-nano"); }), "accepted");
  EXPECT_EQ(refusal([](Request& r) { r.base.model = models::preset("mlp"); }), "accepted");
  EXPECT_THAT(refusal([](Request& r) { r.base.model = models::preset("convnet"); }),
              HasSubstr("family convnet"));
  EXPECT_THAT(refusal([](Request& r) { r.base.model.dropout = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(refusal([](Request& r) { r.base.optimizer.kind = train::OptimizerKind::kSgd; }),
              HasSubstr("adamw"));
  EXPECT_THAT(refusal([](Request& r) { r.base.link = comm::LinkModel::parse("1Gbit,20us"); }),
              HasSubstr("--link"));
  EXPECT_THAT(
      refusal([](Request& r) { r.base.options.units = sharding::UnitPolicy::parse("tensor"); }),
      HasSubstr("--units block, whole, size:N or class:NAME"));
  EXPECT_EQ(
      refusal([](Request& r) { r.base.options.units = sharding::UnitPolicy::parse("size:5k"); }),
      "accepted");
  EXPECT_THAT(refusal([](Request& r) { r.base.backend = "mpi"; }), HasSubstr("--backend shm"));
}

TEST(UnnamedFiles, LiveWithTheirOwner) {
  std::string path;
  {
    const UnnamedFile file;
    path = file.path();
    std::ofstream(path) << "text";
    std::ifstream again(path);
    std::string text;
    again >> text;
    EXPECT_EQ(text, "text");
  }
  EXPECT_FALSE(std::ifstream(path).is_open());
}

TEST(Safetensors, HeaderAndData) {
  const UnnamedFile file;
  const float a[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t b[] = {7};
  SafetensorsWriter writer(file.path(), {{"a", "F32", {2, 3}}, {"b", "I32", {}}});
  writer.write(a, 8);
  writer.write(a + 2, 16);
  EXPECT_THROW(writer.finish(), InvariantError) << "b is missing";
  writer.write(b, 4);
  EXPECT_THROW(writer.write(b, 4), InvariantError) << "more than announced";
  writer.finish();
  std::ifstream in(file.path(), std::ios::binary);
  std::uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  EXPECT_EQ(length % 8, 0u);
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  const auto json = nlohmann::json::parse(header);
  EXPECT_EQ(json["a"],
            (nlohmann::json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 24}}}));
  EXPECT_EQ(json["b"]["data_offsets"], (nlohmann::json{24, 28}));
  float values[6];
  in.read(reinterpret_cast<char*>(values), 24);
  EXPECT_EQ(values[5], 6);
  std::int32_t last = 0;
  in.read(reinterpret_cast<char*>(&last), 4);
  EXPECT_EQ(last, 7);
  EXPECT_THROW(SafetensorsWriter("/no/such/folder/x", {}), UserError);
}

TEST(PeerTrainer, NoPythonIsARowThatSaysSo) {
  PeerTools tools;
  tools.python = "/no/such/python";
  PeerTrainer trainer(tools, [](const train::RunConfig&, const std::string&) {
    return WeightsError{"must not be asked", 0};
  });
  const PeerRun run = trainer.run(peer_kind("ds-zero3"), small_request().base, {});
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(run.failure->message, HasSubstr("/no/such/python is not there"));
  EXPECT_THAT(run.failure->message, HasSubstr("setup.sh deepspeed"));
}

TEST(PeerTrainer, NoWeightsIsARowThatSaysSo) {
  PeerTools tools;
  tools.python = "/bin/sh";
  PeerTrainer trainer(tools, [](const train::RunConfig&, const std::string&) {
    return WeightsError{"disk full", 0};
  });
  const PeerRun run = trainer.run(peer_kind("ddp"), small_request().base, {});
  ASSERT_TRUE(run.failure);
  EXPECT_THAT(run.failure->message, HasSubstr("disk full"));
}

}  // namespace
}  // namespace shardbench::bench

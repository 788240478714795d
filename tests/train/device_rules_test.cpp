#include "common/train/device_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::train {
namespace {

RunConfig on_cuda() {
  RunConfig config;
  config.device = DeviceKind::kCuda;
  config.backend = "nccl";
  config.tuning.mode = ops::TuneMode::kOff;
  return config;
}

/// The message with which it is refused; empty when it is not.
std::string refusal(const std::function<void(RunConfig&)>& change) {
  RunConfig config = on_cuda();
  change(config);
  try {
    validate_device(config);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

TEST(DeviceRules, WhatACudaRunCanDo) {
  EXPECT_EQ(refusal([](RunConfig&) {}), "");
  EXPECT_EQ(refusal([](RunConfig& c) {
              c.max_norm = 1;
              c.accumulation = 4;
              c.options.compute_dtype = DType::kBFloat16;
              c.options.init = InitMode::kBroadcast;
            }),
            "");
}

TEST(DeviceRules, WhatItCannotIsNamed) {
  using ::testing::HasSubstr;
  for (const char* backend : {"auto", "shm", "mpi", "local"}) {
    EXPECT_THAT(refusal([&](RunConfig& c) { c.backend = backend; }),
                HasSubstr(std::string("--backend ") + backend + ": only NCCL"));
  }
  const std::pair<const char*, std::function<void(RunConfig&)>> cases[] = {
      {"--collectives in-place",
       [](RunConfig& c) { c.options.collectives = CollectiveMode::kInPlace; }},
      {"--collectives staged",
       [](RunConfig& c) { c.options.collectives = CollectiveMode::kStaged; }},
      {"--link", [](RunConfig& c) { c.link.emplace(); }},
      {"--comm-thread", [](RunConfig& c) { c.comm_thread = true; }},
      {"--autotune", [](RunConfig& c) { c.tuning.mode = ops::TuneMode::kOn; }},
      {"--autotune", [](RunConfig& c) { c.tuning.mode = ops::TuneMode::kFixed; }},
      {"--deterministic", [](RunConfig& c) { c.deterministic = true; }},
      {"--sparse-embedding", [](RunConfig& c) { c.options.sparse_embedding = true; }},
      {"--optimizer-in-backward", [](RunConfig& c) { c.options.optimizer_in_backward = true; }},
  };
  for (const auto& [flag, change] : cases) {
    EXPECT_THAT(refusal(change), HasSubstr(std::string(flag)));
    EXPECT_THAT(refusal(change), HasSubstr("with --device cuda: "));
    RunConfig on_cpu;
    change(on_cpu);
    EXPECT_NO_THROW(validate_device(on_cpu));
  }
}

}  // namespace
}  // namespace shardbench::train

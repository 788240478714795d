// Whole runs with every operation in ATen's operations, strategies against references as ever.
#include <gtest/gtest.h>

#include "common/ops/on_host.h"
#include "tests/support/parity_run.h"

namespace shardbench::testing {
namespace {

class PortableParity : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, PortableParity,
                         ::testing::Values("mlp", "gpt2-nano", "convnet", "llama-nano"));

TEST_P(PortableParity, OverWorldSizes) {
  const ops::PortableOnly scope;
  expect_parity(small_run(GetParam()), {1, 2, 3});
}

TEST(PortableParityCases, AccumulationClippingAndDropout) {
  const ops::PortableOnly scope;
  train::RunConfig config = small_run("gpt2-nano");
  config.accumulation = 3;
  config.max_norm = 0.5;
  config.model.dropout = 0.1;
  expect_parity(config, {1, 2, 3});
}

TEST(PortableParityCases, HalfWidth) {
  const ops::PortableOnly scope;
  train::RunConfig config = small_run("llama-nano");
  config.options.compute_dtype = config.options.reduce_dtype = DType::kBFloat16;
  expect_parity(config, {1, 2, 3});
}

}  // namespace
}  // namespace shardbench::testing

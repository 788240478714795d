#include "common/models/build.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/error.h"
#include "common/models/fields.h"
#include "tests/support/numeric.h"
#include "tests/support/plain_hooks.h"

namespace shardbench::models {
namespace {

void expect_equal(const sharding::ModelShape& built, const sharding::ModelShape& planned) {
  EXPECT_EQ(built.name, planned.name);
  ASSERT_EQ(built.modules.size(), planned.modules.size());
  for (std::size_t m = 0; m < built.modules.size(); ++m) {
    EXPECT_EQ(built.modules[m].path, planned.modules[m].path);
    EXPECT_EQ(built.modules[m].class_name, planned.modules[m].class_name);
    EXPECT_EQ(built.modules[m].parent, planned.modules[m].parent);
  }
  ASSERT_EQ(built.parameters.size(), planned.parameters.size());
  for (std::size_t p = 0; p < built.parameters.size(); ++p) {
    SCOPED_TRACE(planned.parameters[p].name);
    EXPECT_EQ(built.parameters[p].name, planned.parameters[p].name);
    EXPECT_EQ(built.parameters[p].dims, planned.parameters[p].dims);
    EXPECT_EQ(built.parameters[p].module, planned.parameters[p].module);
    EXPECT_EQ(built.parameters[p].requires_grad, planned.parameters[p].requires_grad);
    EXPECT_EQ(built.parameters[p].decay, planned.parameters[p].decay);
    EXPECT_EQ(built.parameters[p].also_used_by, planned.parameters[p].also_used_by);
  }
}

TEST(Build, EqualsTheShapeOfEveryPreset) {
  // Parameters have no memory until a strategy gives them some, so size does not matter.
  for (const std::string& name : preset_names()) {
    for (bool tied : {true, false}) {
      SCOPED_TRACE(name + (tied ? " tied" : " untied"));
      ModelConfig config = preset(name);
      config.tied = tied;
      if (field("dropout").read_by(config.family)) config.dropout = tied ? 0 : 0.25;
      expect_equal(build(config)->shape(), shape_of(config));
    }
  }
}

TEST(Build, HeadsInPartsEqualTheirShapes) {
  for (const char* name : {"gpt2-nano", "llama-nano"}) {
    for (const std::int64_t parts : {2, 3, 256}) {
      ModelConfig config = preset(name);
      config.tied = false;
      const std::int64_t whole = shape_of(config).parameter_count();
      config.split_head = parts;
      SCOPED_TRACE(config.name + " in " + std::to_string(parts));
      const sharding::ModelShape shape = shape_of(config);
      EXPECT_EQ(shape.parameter_count(), whole);
      expect_equal(build(config)->shape(), shape);
      const auto units = sharding::plan_units(shape, {});
      EXPECT_EQ(units.size(), static_cast<std::size_t>(1 + config.layers + parts));
      EXPECT_TRUE(units.back().name.ends_with("head." + std::to_string(parts - 1)));
    }
  }
}

// Each part has the rows of a whole head that stand in its place: the same logits.
TEST(Build, AHeadInPartsGivesTheLogitsOfAWholeOne) {
  ModelConfig config = preset("gpt2-nano");
  config.layers = 1;
  config.tied = false;
  const auto whole = build(config);
  config.split_head = 3;
  const auto parts = build(config);
  testing::PlainHooks a(*whole), b(*parts);
  a.randomize(0.1);
  for (const Parameter* p : whole->parameters()) {
    if (p->name() != "lm_head.weight") b.value(p->name()).copy_(a.value(p->name()));
  }
  std::int64_t row = 0;
  for (int part = 0; part < 3; ++part) {
    at::Tensor& rows = b.value("lm_head." + std::to_string(part) + ".weight");
    rows.copy_(a.value("lm_head.weight").narrow(0, row, rows.size(0)));
    row += rows.size(0);
  }
  EXPECT_EQ(row, 256);
  const at::Tensor tokens = at::randint(256, {2, 9}, at::kLong);
  EXPECT_TRUE(testing::close_to((*parts)(tokens), (*whole)(tokens), 1e-6));
}

TEST(Build, RefusesABadConfiguration) {
  ModelConfig config = preset("gpt2-nano");
  config.heads = 5;
  EXPECT_THROW(build(config), UserError);
}

TEST(Build, StartsAsGpt2Does) {
  const auto model = build(preset("gpt2-nano"));
  testing::PlainHooks hooks(*model);
  const auto stddev = [&](const char* name) { return hooks.value(name).std().item<double>(); };
  EXPECT_NEAR(stddev("wte.weight"), 0.02, 0.0005);
  EXPECT_NEAR(stddev("wpe.weight"), 0.02, 0.0005);
  EXPECT_NEAR(stddev("h.5.attn.qkv.weight"), 0.02, 0.0005);
  EXPECT_NEAR(stddev("h.5.mlp.fc.weight"), 0.02, 0.0005);
  const double residual = 0.02 / std::sqrt(12.0);
  EXPECT_NEAR(stddev("h.0.attn.proj.weight"), residual, 0.0002);
  EXPECT_NEAR(stddev("h.0.mlp.proj.weight"), residual, 0.0002);
  EXPECT_TRUE(hooks.value("h.0.attn.qkv.bias").eq(0).all().item<bool>());
  EXPECT_TRUE(hooks.value("ln_f.weight").eq(1).all().item<bool>());
  EXPECT_TRUE(hooks.value("ln_f.bias").eq(0).all().item<bool>());
}

TEST(Build, FreshModelsGuessUniformly) {
  for (const char* name : {"mlp", "gpt2-nano"}) {
    const auto model = build(preset(name));
    testing::PlainHooks hooks(*model);
    const at::Tensor tokens = at::randint(256, {2, 32}, at::kLong);
    at::NoGradGuard no_grad;
    const double loss = (*model)(tokens, tokens.roll(-1, 1)).item<double>();
    EXPECT_NEAR(loss, std::log(256.0), name == std::string("mlp") ? 0.6 : 0.2) << name;
  }
}

TEST(Build, BlockUnitsFollowTheLayers) {
  ModelConfig config = preset("mlp");
  const auto mlp = build(config);
  testing::PlainHooks mlp_hooks(*mlp, 1, "block");
  EXPECT_EQ(mlp->units().size(), 6u);  // embed, four layers, head: the root has nothing of its own
  const auto gpt2 = build(preset("gpt2-nano"));
  testing::PlainHooks gpt2_hooks(*gpt2, 1, "block");
  EXPECT_EQ(gpt2->units().size(), 7u);  // root and six blocks
}

TEST(Build, RefusesASequenceBeyondTheContext) {
  ModelConfig config = preset("gpt2-nano");
  config.layers = 1;
  config.context = 5;
  for (Family family : {Family::kGpt2, Family::kMlp}) {
    config.family = family;
    const auto model = build(config);
    testing::PlainHooks hooks(*model);
    const at::Tensor tokens = at::zeros({1, 6}, at::kLong);
    EXPECT_THROW((*model)(tokens, tokens), UserError);
    EXPECT_NO_THROW((*model)(tokens.narrow(1, 0, 5), tokens.narrow(1, 0, 5)));
  }
}

}  // namespace
}  // namespace shardbench::models

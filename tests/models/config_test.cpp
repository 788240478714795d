#include "common/models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/core/error.h"

namespace shardbench::models {
namespace {

using ::testing::HasSubstr;

std::int64_t count(const ModelConfig& config) { return shape_of(config).parameter_count(); }

ModelConfig untied(const std::string& name) {
  ModelConfig config = preset(name);
  config.tied = false;
  return config;
}

template <typename F>
std::string user_error(F&& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Presets, HaveTheKnownParameterCounts) {
  EXPECT_EQ(count(preset("mlp")), 379'256);
  EXPECT_EQ(count(preset("gpt2-nano")), 10'844'160);
  EXPECT_EQ(count(preset("gpt2")), 124'439'808);
  EXPECT_EQ(count(untied("gpt2")), 163'037'184);
  EXPECT_EQ(count(preset("gpt2-medium")), 354'823'168);
  EXPECT_EQ(count(preset("gpt2-large")), 774'030'080);
  EXPECT_EQ(count(preset("gpt2-xl")), 1'557'611'200);
}

TEST(Presets, AreAllValidAndUnderTheirName) {
  for (const std::string& name : preset_names()) {
    EXPECT_EQ(preset(name).name, name);
    EXPECT_NO_THROW(validate(preset(name)));
    EXPECT_EQ(shape_of(preset(name)).name, name);
  }
}

TEST(Presets, UnknownNamesGetTheNearestAndAll) {
  const std::string message = user_error([] { preset("gpt2_nano"); });
  EXPECT_THAT(message, HasSubstr("'gpt2_nano'"));
  EXPECT_THAT(message, HasSubstr("did you mean gpt2-nano?"));
  for (const std::string& name : preset_names()) EXPECT_THAT(message, HasSubstr(name));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_THAT(user_error([] { preset(""); }), HasSubstr("Known: mlp"));
}

TEST(Presets, TheMlpDoesNotDivideEvenly) {
  bool uneven[9] = {};
  for (const auto& p : shape_of(preset("mlp")).parameters) {
    for (int w : {3, 4, 8}) uneven[w] |= p.rows() % w != 0;
  }
  EXPECT_TRUE(uneven[3] && uneven[4] && uneven[8]);
}

TEST(ShapeOf, OneGpt2BlockHasItsKnownSize) {
  std::int64_t block = 0, head = 0;
  for (const auto& p : shape_of(untied("gpt2")).parameters) {
    if (p.name.starts_with("h.3.")) block += p.numel();
    if (p.name == "lm_head.weight") head = p.numel();
  }
  EXPECT_EQ(block, 7'087'872);
  EXPECT_EQ(head, 38'597'376);
}

TEST(ShapeOf, IsAWellFormedTree) {
  for (const std::string& name : preset_names()) {
    const sharding::ModelShape shape = shape_of(preset(name));
    const int modules = static_cast<int>(shape.modules.size());
    std::set<std::string> paths, names;
    for (int m = 0; m < modules; ++m) {
      const sharding::ModuleShape& module = shape.modules[static_cast<std::size_t>(m)];
      EXPECT_LT(module.parent, m);
      EXPECT_EQ(module.parent < 0, m == 0);
      EXPECT_TRUE(paths.insert(module.path).second) << module.path;
    }
    int last_module = 0;
    for (const sharding::ParameterShape& p : shape.parameters) {
      EXPECT_TRUE(names.insert(p.name).second) << p.name;
      EXPECT_GE(p.module, last_module) << "not in pre-order: " << p.name;
      last_module = p.module;
      EXPECT_EQ(p.name.rfind(shape.modules[static_cast<std::size_t>(p.module)].path + ".", 0), 0u);
      EXPECT_EQ(p.decay, p.dims.size() >= 2) << p.name;
      EXPECT_TRUE(p.requires_grad);
    }
  }
}

TEST(ShapeOf, TiesTheHeadToTheEmbedding) {
  const sharding::ModelShape tied = shape_of(preset("gpt2-nano"));
  ASSERT_EQ(tied.parameters[0].name, "wte.weight");
  ASSERT_EQ(tied.parameters[0].also_used_by.size(), 1u);
  const int head = tied.parameters[0].also_used_by[0];
  EXPECT_EQ(tied.modules[static_cast<std::size_t>(head)].path, "lm_head");
  for (const auto& p : tied.parameters) EXPECT_NE(p.name, "lm_head.weight");

  const sharding::ModelShape apart = shape_of(untied("gpt2-nano"));
  EXPECT_TRUE(apart.parameters[0].also_used_by.empty());
  EXPECT_EQ(apart.parameters.back().name, "lm_head.weight");
  EXPECT_EQ(apart.parameters.size(), tied.parameters.size() + 1);
  EXPECT_EQ(apart.modules.size(), tied.modules.size());
}

TEST(Validate, RefusesWhatCannotBeBuilt) {
  const auto message = [](auto change) {
    ModelConfig config = preset("gpt2-nano");
    change(config);
    return user_error([&] { validate(config); });
  };
  EXPECT_THAT(message([](ModelConfig& c) { c.layers = 0; }), HasSubstr("layers is 0"));
  EXPECT_THAT(message([](ModelConfig& c) { c.hidden = -5; }), HasSubstr("hidden is -5"));
  EXPECT_THAT(message([](ModelConfig& c) { c.vocab = 0; }), HasSubstr("vocab is 0"));
  EXPECT_THAT(message([](ModelConfig& c) { c.context = 0; }), HasSubstr("context is 0"));
  EXPECT_THAT(message([](ModelConfig& c) { c.heads = 0; }), HasSubstr("heads is 0"));
  EXPECT_THAT(message([](ModelConfig& c) { c.heads = 7; }),
              HasSubstr("7 heads do not divide hidden 384; use 6 heads"));
  EXPECT_THAT(message([](ModelConfig& c) { c.dropout = 1; }), HasSubstr("dropout is 1"));
  EXPECT_THAT(message([](ModelConfig& c) { c.dropout = -0.1; }), HasSubstr("dropout is -0.1"));
  EXPECT_THAT(message([](ModelConfig& c) { c.hidden = std::int64_t{1} << 40; }),
              HasSubstr("too large"));
  EXPECT_EQ(message([](ModelConfig& c) { c.dropout = 0.5; }), "no error");
}

TEST(Flops, CountMatricesAndAttention) {
  // 6 per matrix weight, 12 * layers * hidden * seq for the scores (PaLM appendix B).
  const ModelConfig gpt2 = preset("gpt2");
  const double matrices = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  EXPECT_DOUBLE_EQ(flops_per_token(gpt2, 128), 6 * matrices + 12.0 * 12 * 768 * 128);
  EXPECT_DOUBLE_EQ(flops_per_token(untied("gpt2"), 128), flops_per_token(gpt2, 128));
  EXPECT_DOUBLE_EQ(flops_per_token(preset("mlp"), 1), 6 * (4.0 * 250 * 250 + 256.0 * 250));
  EXPECT_DOUBLE_EQ(flops_per_token(preset("mlp"), 64), flops_per_token(preset("mlp"), 1));
}

}  // namespace
}  // namespace shardbench::models

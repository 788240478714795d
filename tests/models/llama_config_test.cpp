// Presets, sizes and FLOPs of the Llama family, and the table of fields.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/core/error.h"
#include "common/models/config.h"
#include "common/models/fields.h"

namespace shardbench::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::int64_t count(const ModelConfig& config) { return shape_of(config).parameter_count(); }

std::string refusal(const ModelConfig& config) {
  try {
    validate(config);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

ModelConfig llama(std::int64_t heads, std::int64_t kv_heads, std::int64_t hidden) {
  ModelConfig config = preset("llama-nano");
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.hidden = hidden;
  return config;
}

TEST(LlamaPresets, HaveTheKnownParameterCounts) {
  EXPECT_EQ(count(preset("llama-nano")), 10'012'032);
  EXPECT_EQ(count(preset("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(count(preset("llama2-13b")), 13'015'864'320);
  EXPECT_EQ(count(preset("llama2-70b")), 68'976'648'192);
  EXPECT_EQ(count(preset("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(count(preset("llama3-70b")), 70'553'706'496);
  EXPECT_EQ(count(preset("qwen-14b")), 14'167'290'880);
  // 96 blocks of 12 w^2 + 13 w, embeddings of 50257 tokens and 2048 positions, the final norm.
  const std::int64_t w = 12288;
  EXPECT_EQ(count(preset("gpt3-175b")), 96 * (12 * w * w + 13 * w) + (50257 + 2048) * w + 2 * w);
}

TEST(LlamaPresets, AreListedInOrder) {
  EXPECT_EQ(preset_names(), (std::vector<std::string>{
                                "mlp", "convnet", "gpt2-nano", "gpt2", "gpt2-medium", "gpt2-large",
                                "gpt2-xl", "llama-nano", "llama2-7b", "llama2-13b", "llama2-70b",
                                "llama3-8b", "llama3-70b", "qwen-14b", "gpt3-175b"}));
}

TEST(LlamaPresets, TheNanoDoesNotDivideEvenly) {
  bool uneven[9] = {};
  for (const auto& p : shape_of(preset("llama-nano")).parameters) {
    for (int w : {3, 4, 8}) uneven[w] |= p.rows() % w != 0;
  }
  EXPECT_TRUE(uneven[3] && uneven[4] && uneven[8]);
  EXPECT_LT(preset("llama-nano").kv_heads, preset("llama-nano").heads);
}

TEST(LlamaShape, OneBlockHasItsParameters) {
  ModelConfig config = llama(4, 2, 24);
  config.layers = 1;
  config.feed_forward = 13;
  config.qkv_bias = true;
  const sharding::ModelShape shape = shape_of(config);
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> parameters;
  for (const auto& p : shape.parameters) {
    parameters.emplace_back(p.name, p.dims);
    EXPECT_EQ(p.decay, p.dims.size() == 2) << p.name;
  }
  const decltype(parameters) expected = {{"embed.weight", {256, 24}},
                                         {"layers.0.attn_norm.weight", {24}},
                                         {"layers.0.attn.q.weight", {24, 24}},
                                         {"layers.0.attn.q.bias", {24}},
                                         {"layers.0.attn.k.weight", {12, 24}},
                                         {"layers.0.attn.k.bias", {12}},
                                         {"layers.0.attn.v.weight", {12, 24}},
                                         {"layers.0.attn.v.bias", {12}},
                                         {"layers.0.attn.o.weight", {24, 24}},
                                         {"layers.0.mlp_norm.weight", {24}},
                                         {"layers.0.mlp.gate.weight", {13, 24}},
                                         {"layers.0.mlp.up.weight", {13, 24}},
                                         {"layers.0.mlp.down.weight", {24, 13}},
                                         {"norm.weight", {24}},
                                         {"head.weight", {256, 24}}};
  EXPECT_EQ(parameters, expected);
}

TEST(LlamaShape, TiesTheHeadWhenAsked) {
  ModelConfig config = preset("llama-nano");
  config.tied = true;
  EXPECT_EQ(count(config), 10'012'032 - 256 * 384);
  const sharding::ModelShape shape = shape_of(config);
  ASSERT_EQ(shape.parameters[0].also_used_by.size(), 1u);
  const int head = shape.parameters[0].also_used_by[0];
  EXPECT_EQ(shape.modules[static_cast<std::size_t>(head)].path, "head");
}

TEST(LlamaShape, WithoutKvHeadsThereAreAsManyAsHeads) {
  EXPECT_EQ(count(llama(6, 0, 384)), count(llama(6, 6, 384)));
  EXPECT_EQ(refusal(llama(6, 0, 384)), "accepted");
}

TEST(LlamaValidate, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(refusal(llama(7, 1, 384)), HasSubstr("7 heads do not divide hidden 384; use 6"));
  EXPECT_THAT(refusal(llama(6, 4, 384)),
              HasSubstr("kv_heads is 4, which does not divide 6 heads; nearest: 3"));
  EXPECT_THAT(refusal(llama(6, 7, 384)), HasSubstr("nearest: 6"));
  EXPECT_THAT(refusal(llama(6, -1, 384)), HasSubstr("kv_heads is -1; it must be at least 1"));
  // 128 heads of 3: the nearest that are even and divide 384.
  EXPECT_THAT(refusal(llama(128, 128, 384)), AllOf(HasSubstr("3 wide"), HasSubstr("use 96 heads")));
  EXPECT_THAT(refusal(llama(4, 2, 385)), AllOf(HasSubstr("hidden is 385"), HasSubstr("384")));
  EXPECT_EQ(refusal(llama(4, 2, 384)), "accepted");
}

TEST(LlamaValidate, RefusesValuesOutOfRange) {
  const auto changed = [](auto change) {
    ModelConfig config = preset("llama-nano");
    change(config);
    return refusal(config);
  };
  EXPECT_THAT(changed([](ModelConfig& c) { c.feed_forward = 0; }), HasSubstr("feed_forward is 0"));
  EXPECT_THAT(changed([](ModelConfig& c) { c.feed_forward = std::int64_t{1} << 40; }),
              AllOf(HasSubstr("feed_forward"), HasSubstr("too large"), HasSubstr("4194304")));
  EXPECT_THAT(changed([](ModelConfig& c) { c.layers = 1 << 20; }),
              AllOf(HasSubstr("layers is 1048576"), HasSubstr("the most is 16384")));
  EXPECT_THAT(changed([](ModelConfig& c) { c.rope_theta = 0; }), HasSubstr("rope_theta is 0"));
  EXPECT_THAT(changed([](ModelConfig& c) { c.norm_eps = -1; }), HasSubstr("norm_eps is -1"));
  EXPECT_THAT(
      changed([](ModelConfig& c) { c.norm_eps = std::numeric_limits<double>::quiet_NaN(); }),
      HasSubstr("norm_eps is nan"));
  EXPECT_THAT(changed([](ModelConfig& c) { c.dropout = 0.1; }),
              AllOf(HasSubstr("dropout is 0.1"), HasSubstr("family llama")));
}

TEST(Limits, TheLargestSizesKeepByteCountsWithinSixtyThreeBits) {
  // 16 bytes per parameter, at the largest of everything at once.
  const double w = field("hidden").max, layers = field("layers").max;
  const double gpt2 = layers * (12 * w * w + 13 * w) + 2 * field("vocab").max * w;
  const double llama = layers * (4 * w * w + 3 * w * field("feed_forward").max + 2 * w);
  EXPECT_LT(16 * gpt2, 0x1p63);
  EXPECT_LT(16 * llama, 0x1p63);
}

TEST(Fields, NameWhatEachFamilyReads) {
  EXPECT_EQ(keys_of(Family::kMlp),
            (std::vector<std::string>{"layers", "hidden", "vocab", "context", "dropout"}));
  EXPECT_EQ(keys_of(Family::kGpt2),
            (std::vector<std::string>{"layers", "heads", "hidden", "vocab", "context", "tied",
                                      "split_head", "dropout"}));
  EXPECT_EQ(keys_of(Family::kLlama),
            (std::vector<std::string>{"layers", "heads", "hidden", "vocab", "context", "tied",
                                      "split_head", "kv_heads", "feed_forward", "qkv_bias",
                                      "rope_theta", "norm_eps"}));
  EXPECT_EQ(name_of(Family::kMlp), "mlp");
  EXPECT_EQ(name_of(Family::kConvnet), "convnet");
  EXPECT_EQ(name_of(Family::kGpt2), "gpt2");
  EXPECT_EQ(name_of(Family::kLlama), "llama");
  EXPECT_THROW(field("width"), InvariantError);
}

TEST(LlamaFlops, CountEveryMatrixOnceAndAttentionByQueryHeads) {
  // One block of hidden 24 with 4 query heads of 6 and 2 key heads, inner width 13, vocabulary 10,
  // by hand: q and o 2 * 576, k and v 2 * 288, three of 312; the head 240; 12 * 24 * 5 for scores
  // and mixing over 5 positions.
  ModelConfig config = llama(4, 2, 24);
  config.layers = 1;
  config.feed_forward = 13;
  config.vocab = 10;
  EXPECT_DOUBLE_EQ(flops_per_token(config, 5), 6.0 * (1152 + 576 + 936 + 240) + 12 * 24 * 5);
  config.kv_heads = 4;  // more keys: larger k and v, the same attention
  EXPECT_DOUBLE_EQ(flops_per_token(config, 5), 6.0 * (1152 + 1152 + 936 + 240) + 12 * 24 * 5);
  config.tied = true;  // a shared head is still a product
  EXPECT_DOUBLE_EQ(flops_per_token(config, 5), 6.0 * (1152 + 1152 + 936 + 240) + 12 * 24 * 5);
}

TEST(LlamaFlops, AreSixPerParameterThatIsMultiplied) {
  // All parameters but the embedding, norms and biases are in one product per token.
  for (const char* name : {"llama-nano", "llama3-8b", "qwen-14b", "gpt2", "mlp"}) {
    ModelConfig config = preset(name);
    config.tied = false;
    double weights = 0;
    for (const auto& p : shape_of(config).parameters) {
      const bool looked_up = p.name == "embed.weight" || p.name.starts_with("w");
      if (p.dims.size() == 2 && !looked_up) weights += static_cast<double>(p.numel());
    }
    EXPECT_DOUBLE_EQ(flops_per_token(config, 0), 6 * weights) << name;
  }
}

}  // namespace
}  // namespace shardbench::models

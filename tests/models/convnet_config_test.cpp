#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/error.h"
#include "common/models/config.h"
#include "common/models/convnet_stages.h"

namespace shardbench::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig convnet(std::vector<std::int64_t> image, std::int64_t layers, std::int64_t hidden) {
  ModelConfig config = preset("convnet");
  config.image = std::move(image);
  config.context = image_elements(config);
  config.layers = layers;
  config.hidden = hidden;
  return config;
}

template <typename Change>
std::string refusal(Change change) {
  ModelConfig config = preset("convnet");
  change(config);
  try {
    validate(config);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConvnetShape, ThePresetHasItsParameters) {
  // Four convolutions of 3 x 3, two numbers per channel after each, and the head.
  const std::int64_t convolutions = 9 * (3 * 33 + 33 * 66 + 66 * 132 + 132 * 264);
  const std::int64_t norms = 2 * (33 + 66 + 132 + 264), head = 264 * 256 + 256;
  EXPECT_EQ(shape_of(preset("convnet")).parameter_count(), convolutions + norms + head);
  EXPECT_EQ(preset("convnet").context, 768);
}

TEST(ConvnetShape, RowsDoNotDivideEvenly) {
  bool uneven[9] = {};
  for (const auto& p : shape_of(preset("convnet")).parameters) {
    for (int w : {2, 4, 8}) uneven[w] |= p.rows() % w != 0;
  }
  EXPECT_TRUE(uneven[2] && uneven[4] && uneven[8]);
}

TEST(ConvnetStages, DoubleChannelsAndHalveSizes) {
  const std::vector<ConvnetStage> stages = convnet_stages(convnet({3, 7, 16}, 4, 5));
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0].in, 3);
  EXPECT_EQ(stages[0].out, 5);
  EXPECT_EQ(stages[3].in, 20);
  EXPECT_EQ(stages[3].out, 40);
  EXPECT_THAT(stages[0].size, ElementsAre(7, 16));
  EXPECT_THAT(stages[1].size, ElementsAre(3, 8));
  EXPECT_THAT(stages[3].size, ElementsAre(1, 2));
  EXPECT_THAT(stages[2].pool, ElementsAre(1, 2));
  EXPECT_THAT(stages[3].pool, IsEmpty());  // the mean over all positions follows
}

TEST(ConvnetStages, StopPoolingAtSizeOne) {
  const std::vector<ConvnetStage> stages = convnet_stages(convnet({1, 2}, 4, 1));
  EXPECT_THAT(stages[0].pool, ElementsAre(2));
  EXPECT_THAT(stages[1].pool, IsEmpty());
  EXPECT_THAT(stages[2].size, ElementsAre(1));
}

TEST(ConvnetShape, DimensionsFollowTheImage) {
  for (std::size_t dims : {1u, 2u, 3u}) {
    std::vector<std::int64_t> image(dims + 1, 4);
    const sharding::ModelShape shape = shape_of(convnet(image, 2, 6));
    EXPECT_EQ(shape.modules[2].class_name, "Conv" + std::to_string(dims) + "d");
    std::vector<std::int64_t> weight = {6, 4};
    weight.insert(weight.end(), dims, 3);
    EXPECT_EQ(shape.parameters[0].dims, weight);
  }
}

TEST(ConvnetValidate, RefusesWhatIsNoImage) {
  EXPECT_EQ(refusal([](ModelConfig&) {}), "no error");
  EXPECT_THAT(refusal([](ModelConfig& c) { c.image = {}; }), HasSubstr("image has 0 sizes"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.image = {768}; }), HasSubstr("image has 1 sizes"));
  EXPECT_THAT(refusal([](ModelConfig& c) {
                c.image = {3, 2, 2, 8, 8};
              }),
              HasSubstr("image has 5 sizes"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.image = {3, 0, 16}; }), HasSubstr("image is 0"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.image = {3, -16, -16}; }), HasSubstr("image is -16"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.context = 128; }),
              HasSubstr("context is 128, but an image of 3x16x16 has 768 elements; nearest: 768"));
  EXPECT_THAT(refusal([](ModelConfig& c) {
                c.image = {65536, 65536, 65536, 65536};
              }),
              HasSubstr("too many elements"));
}

TEST(ConvnetValidate, RefusesChannelsWithoutBound) {
  EXPECT_THAT(refusal([](ModelConfig& c) { c.layers = 100; }),
              HasSubstr("100 layers double 33 channels beyond 1048576; the most is 15 layers"));
  EXPECT_EQ(refusal([](ModelConfig& c) { c.layers = 15; }), "no error");
  EXPECT_EQ(convnet_stages(convnet({3, 16, 16}, 15, 33)).back().out, 33 << 14);
  EXPECT_THAT(refusal([](ModelConfig& c) { c.layers = 16; }), HasSubstr("the most is 15"));
}

TEST(ConvnetFlops, CountProductsOfOneWindow) {
  // Multiply-adds per window; the first stage's input needs no gradient.
  const double first = 9.0 * 3 * 33 * 256, second = 9.0 * 33 * 66 * 64, third = 9.0 * 66 * 132 * 16,
               fourth = 9.0 * 132 * 264 * 4, head = 264.0 * 256;
  const double window = 4 * first + 6 * (second + third + fourth + head);
  EXPECT_DOUBLE_EQ(convnet_flops_per_window(preset("convnet")), window);
  EXPECT_DOUBLE_EQ(flops_per_token(preset("convnet"), 768), window / 768);
}

TEST(LeastBatch, IsTwoWhereOnePositionIsLeft) {
  EXPECT_EQ(least_batch(preset("convnet")), 1);  // 2 x 2 positions in the last stage
  EXPECT_EQ(least_batch(convnet({3, 16, 16}, 5, 4)), 2);
  EXPECT_EQ(least_batch(convnet({3, 16, 32}, 5, 4)), 1);
  EXPECT_EQ(least_batch(convnet({7, 1}, 1, 4)), 2);
  EXPECT_EQ(least_batch(preset("gpt2-nano")), 1);
}

TEST(FixedSeq, IsTheImageOrNothing) {
  EXPECT_EQ(fixed_seq(preset("convnet")), 768);
  EXPECT_EQ(fixed_seq(convnet({2, 5, 3, 7}, 2, 4)), 210);
  EXPECT_EQ(fixed_seq(preset("gpt2-nano")), 0);
  EXPECT_EQ(fixed_seq(preset("mlp")), 0);
}

}  // namespace
}  // namespace shardbench::models

#include "common/models/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/core/error.h"
#include "common/models/fields.h"

namespace shardbench::models {
namespace {

using ::testing::HasSubstr;

class ModelFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "model_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "small.json") const {
    return (folder_ / name).string();
  }
  ModelConfig read(const std::string& text) const {
    std::ofstream(path()) << text;
    return read_model_file(path());
  }
  /// The message, checked to be one line that starts with the file.
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const UserError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind(path() + ": ", 0), 0u) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_LT(message.size(), path().size() + 400) << message;
      return message;
    }
    return "accepted";
  }
  std::filesystem::path folder_;
};

TEST_F(ModelFile, GivesEverySizeOfALlama) {
  const ModelConfig config = read(R"({"family": "llama", "name": "wide one", "layers": 3,
      "heads": 8, "hidden": 64, "vocab": 100, "context": 32, "tied": true, "kv_heads": 2,
      "feed_forward": 90, "qkv_bias": true, "rope_theta": 500000, "norm_eps": 1e-6})");
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.name, "wide one");
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.vocab, 100);
  EXPECT_EQ(config.context, 32);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.feed_forward, 90);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_EQ(config.rope_theta, 500000);
  EXPECT_EQ(config.norm_eps, 1e-6);
}

TEST_F(ModelFile, StartsFromAPreset) {
  const ModelConfig config = read(R"({"base": "gpt2", "layers": 2, "dropout": 0.1})");
  EXPECT_EQ(config.family, Family::kGpt2);
  EXPECT_EQ(config.name, "small");
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.hidden, 768);
  EXPECT_EQ(config.vocab, 50257);
  EXPECT_EQ(config.dropout, 0.1);
  EXPECT_EQ(read(R"({"base": "llama2-7b", "family": "llama"})").feed_forward, 11008);
}

TEST_F(ModelFile, WithoutABaseStartsFromTheSmallestOfTheFamily) {
  EXPECT_EQ(read(R"({"family": "gpt2"})").hidden, preset("gpt2-nano").hidden);
  EXPECT_EQ(read(R"({"family": "llama"})").feed_forward, preset("llama-nano").feed_forward);
  EXPECT_EQ(read(R"({"family": "mlp", "layers": 1})").hidden, preset("mlp").hidden);
}

TEST_F(ModelFile, TheContextOfAConvnetFollowsItsImage) {
  const ModelConfig config = read(R"({"family": "convnet", "image": [2, 9, 5], "layers": 2})");
  EXPECT_EQ(config.image, (std::vector<std::int64_t>{2, 9, 5}));
  EXPECT_EQ(config.context, 90);
  EXPECT_THAT(refusal(R"({"family": "convnet", "image": [65536, 65536]})"), HasSubstr("image"));
}

TEST_F(ModelFile, IsWhatANameInJsonMeans) {
  std::ofstream(path()) << R"({"base": "mlp", "hidden": 20})";
  EXPECT_EQ(model_named(path()).hidden, 20);
  EXPECT_EQ(model_named("gpt2").hidden, 768);
  EXPECT_THROW(model_named("gpt3"), UserError);
  EXPECT_THROW(model_named("gpt2.json"), UserError);
}

TEST_F(ModelFile, ReadsWhatItWrites) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    const ModelConfig again = read(model_json(config).dump());
    EXPECT_EQ(again.name, name);
    EXPECT_EQ(model_json(again), model_json(config));
    EXPECT_EQ(shape_of(again).parameter_count(), shape_of(config).parameter_count());
  }
  const nlohmann::ordered_json mlp = model_json(preset("mlp"));
  EXPECT_FALSE(mlp.contains("heads"));
  EXPECT_EQ(mlp.at("hidden"), 250);
}

struct BadFile {
  const char* name;
  std::string text;
  std::vector<std::string> parts;
};

TEST_F(ModelFile, RefusesWhatDescribesNoModel) {
  const std::vector<BadFile> files = {
      {"empty", "", {"not JSON, or cut short"}},
      {"text", "layers: 3", {"not JSON", "line 1"}},
      {"cut short", "{\"family\": \"gpt2\",\n \"layers\": ", {"cut short", "line 2"}},
      {"trailing", "{\"family\": \"gpt2\"} x", {"not JSON"}},
      {"not UTF-8", "{\"family\": \"\xff\"}", {"not JSON"}},
      {"list", "[1, 2]", {"[1,2]", "one object"}},
      {"too deep", std::string(5000, '[') + std::string(5000, ']'), {"too deeply"}},
      {"too large", std::string(2 << 20, ' ') + "{}", {"bytes", "1048576"}},
      {"no family", "{}", {"key family is missing", "llama", "base"}},
      {"unknown family", R"({"family": "gtp2"})", {"family", "gtp2", "did you mean 'gpt2'"}},
      {"family of a wrong type", R"({"family": 2})", {"key family is 2", "mlp, convnet"}},
      {"unknown base", R"({"base": "gpt2-nan"})", {"key base", "did you mean gpt2-nano"}},
      {"base of another family",
       R"({"base": "gpt2", "family": "llama"})",
       {"key base", "gpt2", "llama", "leave one out"}},
      {"unknown key",
       R"({"family": "gpt2", "layer": 3})",
       {"unknown key \"layer\"", "did you mean 'layers'"}},
      {"key twice",
       R"({"family": "gpt2", "layers": 3, "layers": 4})",
       {"key \"layers\" stands there twice"}},
      {"key of another family",
       R"({"family": "gpt2", "kv_heads": 2})",
       {"key kv_heads has no effect on family gpt2", "layers, heads"}},
      {"heads of an MLP", R"({"family": "mlp", "heads": 2})", {"key heads has no effect"}},
      {"dropout of a Llama", R"({"base": "llama-nano", "dropout": 0.1})", {"key dropout"}},
      {"text for a number",
       R"({"family": "gpt2", "layers": "six"})",
       {"key layers is \"six\"", "whole number from 1 to 16384"}},
      {"fraction", R"({"family": "gpt2", "hidden": 64.5})", {"key hidden is 64.5", "whole"}},
      {"null", R"({"family": "gpt2", "hidden": null})", {"key hidden is null"}},
      {"number for a switch", R"({"family": "gpt2", "tied": 1})", {"tied is 1", "true or false"}},
      {"zero", R"({"family": "gpt2", "layers": 0})", {"key layers is 0", "nearest: 1"}},
      {"negative", R"({"family": "gpt2", "vocab": -3})", {"key vocab is -3", "nearest: 1"}},
      {"huge", R"({"family": "gpt2", "layers": 1000000000})", {"key layers", "nearest: 16384"}},
      {"beyond 63 bits",
       R"({"family": "gpt2", "hidden": 18446744073709551615})",
       {"key hidden", "nearest: 1048576"}},
      {"beyond 64 bits",
       R"({"family": "gpt2", "hidden": 99999999999999999999})",
       {"key hidden", "whole number"}},
      {"beyond a double", R"({"family": "gpt2", "dropout": 1e999})", {"not JSON"}},
      {"dropout above one", R"({"family": "gpt2", "dropout": 1.5})", {"dropout is 1.5", "below 1"}},
      {"heads that do not divide",
       R"({"family": "gpt2", "heads": 7})",
       {"7 heads", "hidden 384", "use 6 heads"}},
      {"keys that do not divide",
       R"({"family": "llama", "kv_heads": 4})",
       {"kv_heads is 4", "nearest: 3"}},
      {"odd heads",
       R"({"family": "llama", "heads": 128, "kv_heads": 128})",
       {"3 wide", "use 96 heads"}},
      {"empty name", R"({"family": "gpt2", "name": ""})", {"key name", "printable"}},
      {"name with a line break", R"({"family": "gpt2", "name": "a\nb"})", {"key name"}},
      {"name of a wrong type", R"({"family": "gpt2", "name": 5})", {"key name is 5"}},
      {"image that is no list",
       R"({"family": "convnet", "image": 3})",
       {"key image is 3", "list of whole numbers"}},
      {"image of one number", R"({"family": "convnet", "image": [3]})", {"key image is [3]"}},
      {"image of nothing", R"({"family": "convnet", "image": [3, 0]})", {"key image is [3,0]"}},
  };
  for (const BadFile& file : files) {
    const std::string message = refusal(file.text);
    for (const std::string& part : file.parts) {
      EXPECT_THAT(message, HasSubstr(part)) << file.name;
    }
  }
}

TEST_F(ModelFile, RefusesWhatCannotBeRead) {
  const auto message = [&](const std::string& name) {
    try {
      model_named(name);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message(path("none.json")), HasSubstr("none.json: there is no such file"));
  std::filesystem::create_directory(path("folder.json"));
  EXPECT_THAT(message(path("folder.json")), HasSubstr("folder.json: not a file"));
  EXPECT_THAT(message(path("small.json") + "/x.json"), HasSubstr("no such file"));
}

}  // namespace
}  // namespace shardbench::models

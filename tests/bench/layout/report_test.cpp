#include "bench/layout/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/compare/format.h"
#include "common/core/error.h"
#include "common/models/config.h"
#include "tests/sharding/shapes.h"

namespace shardbench::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

sharding::ModelShape five_rows() {
  sharding::ShapeBuilder build("five");
  build.parameter(build.module("a", "Linear"), "weight", {5, 8});
  build.parameter(build.module("b", "Linear"), "weight", {1, 16});
  return build.model();
}

LayoutReport report_of(sharding::ModelShape model, const std::vector<std::string>& strategies,
                       const std::vector<int>& worlds) {
  return make_layout_report(std::move(model), {}, strategies, worlds);
}

std::size_t widest(const std::string& text) {
  std::istringstream in(text);
  std::size_t most = 0;
  for (std::string line; std::getline(in, line);) most = std::max(most, line.size());
  return most;
}

TEST(LayoutWorlds, ListsAndRanges) {
  EXPECT_EQ(parse_layout_worlds("--world", "4"), (std::vector<int>{4}));
  EXPECT_EQ(parse_layout_worlds("--world", "8,1-3,1024"), (std::vector<int>{8, 1, 2, 3, 1024}));
  EXPECT_EQ(parse_layout_worlds("--world", "1-1024").size(), 1024u);
  EXPECT_EQ(parse_layout_worlds("--world", "7-7"), (std::vector<int>{7}));
}

TEST(LayoutWorlds, RefusedInOneLine) {
  const auto message = [](const char* text) {
    try {
      parse_layout_worlds("--world", text);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("0"), HasSubstr("nearest: 1"));
  EXPECT_THAT(message("-3"), HasSubstr("nearest: 1"));
  EXPECT_THAT(message("1025"), HasSubstr("nearest: 1024"));
  EXPECT_THAT(message("2-2000"), HasSubstr("nearest: 1024"));
  EXPECT_THAT(message("99999999999999"), HasSubstr("nearest: 1024"));
  EXPECT_THAT(message("9-4"), HasSubstr("write 4-9"));
  EXPECT_THAT(message("2,1-3"), HasSubstr("2 stands there twice"));
  for (const char* text : {"", "2,", "a", "1.5", "1-", "1-b", "-"}) {
    EXPECT_THAT(message(text), HasSubstr("1-1024")) << text;
  }
}

TEST(LayoutText, FiveRowsOverFourRanks) {
  const std::string text = layout_text(report_of(five_rows(), {"fsdp"}, {4}), LayoutTable::kBrief);
  EXPECT_THAT(text,
              HasSubstr("five: 56 params in 2 tensors, fp32 AdamW (16 bytes each), units block"));
  EXPECT_THAT(text, HasSubstr("2 x2, 1, 0"));
  EXPECT_THAT(text, HasSubstr("0-1 2-3 4 -"));
  EXPECT_THAT(text, HasSubstr("1, 0 x3"));
  const std::string full = layout_text(report_of(five_rows(), {"fsdp"}, {4}), LayoutTable::kFull);
  EXPECT_THAT(full, HasSubstr("a.weight: 0-1 2-3 4 - x1"));
  EXPECT_THAT(full, HasSubstr("b.weight: 0 - x3"));
}

TEST(LayoutText, SaysTheDtypesAndWhatIsSent) {
  const LayoutReport report =
      make_layout_report(five_rows(), {{}, DType::kBFloat16, DType::kFloat32}, {"fsdp"}, {2, 128});
  EXPECT_THAT(layout_line(report), HasSubstr("bf16 (reduce fp32), masters and AdamW fp32"));
  const nlohmann::ordered_json config = layout_config_json(report);
  EXPECT_EQ(config["recipe"]["param_dtype"], "bf16");
  EXPECT_EQ(config["recipe"]["reduce_dtype"], "fp32");
  const nlohmann::ordered_json layouts = layouts_json(report, true);
  // Rows 0-2 and the one row of b, then rows 3-4: gathered twice in bf16, the rest reduced in fp32.
  EXPECT_EQ(layouts[0]["per_rank"][0]["sent_bytes"], 2 * 40 * 2 + 16 * 4);
  EXPECT_EQ(layouts[0]["per_rank"][1]["sent_bytes"], 2 * 16 * 2 + 40 * 4);
  EXPECT_EQ(layouts[0]["sent_bytes"]["mean"], 224);
  EXPECT_FALSE(layouts[1].contains("sent_bytes"));
}

TEST(LayoutText, OwnersAndWhyTheyAreUneven) {
  const std::string text =
      layout_text(report_of(five_rows(), {"zero3", "ddp"}, {2}), LayoutTable::kBrief);
  EXPECT_THAT(text, HasSubstr("owner"));
  EXPECT_THAT(text, HasSubstr("zero3 W=2: rank 0 keeps 1.43 x the mean; it owns a.weight, 71 %"));
  EXPECT_THAT(text, HasSubstr("ddp W=2: every rank keeps the same"));
  EXPECT_THAT(text, HasSubstr("all ranks"));
}

TEST(LayoutText, BriefFitsTheScreenAndFoldsBlocksAlike) {
  for (const char* name : {"gpt2-nano", "gpt2", "gpt2-xl", "mlp"}) {
    for (const int world_size : {1, 2, 8, 64, 1024}) {
      const LayoutReport report =
          report_of(models::shape_of(models::preset(name)),
                    {"ddp", "zero1", "zero2", "zero3", "fsdp"}, {world_size});
      const std::string text = layout_text(report, LayoutTable::kBrief);
      EXPECT_LE(widest(text), kScreenWidth) << name << " W=" << world_size << '\n' << text;
    }
  }
  const std::string text = layout_text(
      report_of(models::shape_of(models::preset("gpt2")), {"fsdp"}, {8}), LayoutTable::kBrief);
  EXPECT_THAT(text, HasSubstr("h.0 - h.11"));
  EXPECT_THAT(text, HasSubstr("h.*.attn.qkv.weight"));
  EXPECT_THAT(text, Not(HasSubstr("h.1.attn.qkv.weight")));
  EXPECT_THAT(text, HasSubstr("6283 x7, 6276"));
}

TEST(LayoutText, ManyWorldSizesShowAChoice) {
  const LayoutReport report = report_of(models::shape_of(models::preset("gpt2")), {"zero3", "fsdp"},
                                        parse_layout_worlds("-", "1-1024"));
  EXPECT_EQ(report.layouts.size(), 2048u);
  const std::string brief = layout_text(report, LayoutTable::kBrief);
  EXPECT_LE(widest(brief), kScreenWidth);
  EXPECT_THAT(brief, HasSubstr("more world sizes"));
  EXPECT_THAT(brief, HasSubstr("zero3    1024"));
  EXPECT_LT(std::count(brief.begin(), brief.end(), '\n'), 50);
  const std::string all = layout_text(report, LayoutTable::kSummary);
  EXPECT_GE(std::count(all.begin(), all.end(), '\n'), 2048);
}

TEST(LayoutTables, CsvHasOneRowPerTensorAndRunOfRanks) {
  const LayoutReport report = report_of(five_rows(), {"fsdp", "zero3"}, {4});
  EXPECT_EQ(layout_csv(report, LayoutTable::kTensors),
            "strategy,world_size,tensor,shape,unit,ranks,rows_per_rank,elements_per_rank\n"
            "\"fsdp\",4,\"a.weight\",\"5x8\",\"a\",\"0-1\",2,16\n"
            "\"fsdp\",4,\"a.weight\",\"5x8\",\"a\",\"2\",1,8\n"
            "\"fsdp\",4,\"a.weight\",\"5x8\",\"a\",\"3\",0,0\n"
            "\"fsdp\",4,\"b.weight\",\"1x16\",\"b\",\"0\",1,16\n"
            "\"fsdp\",4,\"b.weight\",\"1x16\",\"b\",\"1-3\",0,0\n"
            "\"zero3\",4,\"a.weight\",\"5x8\",\"a\",\"0\",5,40\n"
            "\"zero3\",4,\"b.weight\",\"1x16\",\"b\",\"1\",1,16\n");
  const std::string summary = layout_csv(report, LayoutTable::kBrief);
  EXPECT_THAT(summary, HasSubstr("states_max_bytes,balance,fullest_rank,ranks_without"));
  EXPECT_THAT(summary, HasSubstr("\"zero3\",4,0,224,640,2.857142857,0,2,128"));
  const std::string markdown = layout_markdown(report, LayoutTable::kFull);
  EXPECT_THAT(markdown, HasSubstr("Tensors, zero3, W=4"));
  EXPECT_THAT(markdown, HasSubstr("| a.weight"));
}

TEST(LayoutJson, HasUnitsTensorsAndRanks) {
  const LayoutReport report = report_of(five_rows(), {"fsdp", "zero3"}, {4});
  const nlohmann::ordered_json config = layout_config_json(report);
  EXPECT_EQ(config["model"]["params"], 56);
  EXPECT_EQ(config["tensors"][0]["shape"], nlohmann::ordered_json::array({5, 8}));
  const nlohmann::ordered_json layouts = layouts_json(report, true);
  ASSERT_EQ(layouts.size(), 2u);
  EXPECT_EQ(layouts[0]["tensors"][0]["rows"].size(), 3u);
  EXPECT_EQ(layouts[0]["tensors"][0]["rows"][1]["first_row"], 4);
  EXPECT_EQ(layouts[0]["per_rank"].size(), 4u);
  EXPECT_EQ(layouts[0]["per_rank"][0]["persistent_bytes"], 16 * (16 + 16));
  EXPECT_EQ(layouts[0]["units"][0]["gathers"], 2);
  EXPECT_EQ(layouts[1]["tensors"][0]["owner"], 0);
  EXPECT_EQ(layouts[1]["tensors"][1]["owner"], 1);
  EXPECT_EQ(layouts[1]["persistent_bytes"]["max"], 640);
}

TEST(LayoutJson, ManyLayoutsLeaveDetailsOutUnlessATableAsksForThem) {
  const LayoutReport few = report_of(five_rows(), {"fsdp"}, {1, 2});
  EXPECT_TRUE(layout_details(few, LayoutTable::kBrief));
  const LayoutReport many = report_of(five_rows(), {"fsdp"}, parse_layout_worlds("-", "1-65"));
  EXPECT_FALSE(layout_details(many, LayoutTable::kBrief));
  EXPECT_FALSE(layout_details(many, LayoutTable::kSummary));
  EXPECT_TRUE(layout_details(many, LayoutTable::kFull));
  const nlohmann::ordered_json layouts = layouts_json(many, false);
  ASSERT_EQ(layouts.size(), 65u);
  EXPECT_EQ(layouts[64]["persistent_bytes"]["max"], 16 * (8 + 16));
  EXPECT_FALSE(layouts[64].contains("per_rank"));
}

}  // namespace
}  // namespace shardbench::bench

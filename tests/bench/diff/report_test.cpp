#include "bench/diff/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/bench/diff/documents.h"

namespace shardbench::bench {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

struct Sides {
  ResultFile before, after;
};

Sides sides() {
  json wrong = result_with("fsdp", steady(3, 100e6));
  wrong["parity"] = {{"ok", false}, {"first_tensor", "w"}};
  wrong["error_occurred"] = true;
  wrong["error_message"] = "a|b";
  json slow = result_with("ddp", steady(4, 110e6));
  slow["parameter_hash"] = "fedcba9876543210";
  return {parse_results("old.json", document_with({result_with("ddp", steady(4, 100e6)),
                                                   result_with("fsdp", steady(4, 100e6)),
                                                   result_with("zero3", steady(4, 100e6))})
                                        .dump()),
          parse_results("new.json", document_with({slow, wrong}).dump())};
}

Diff made(const Sides& both) {
  DiffOptions options;
  options.metrics = choose_metrics({}, false);
  return diff(both.before, both.after, options);
}

TEST(DiffTable, OneLinePerMetricAndTheRowOnce) {
  const std::string text = diff_table(made(sides())).render();
  EXPECT_THAT(text, HasSubstr("ddp/w2/block  step_time, ms"));
  EXPECT_THAT(text, HasSubstr("+10.0"));
  EXPECT_THAT(text, HasSubstr("worse"));
  EXPECT_THAT(text, HasSubstr("01234567"));
  EXPECT_THAT(text, Not(HasSubstr("0123456789")));
  EXPECT_THAT(text, HasSubstr("right -> WRONG w: a|b: worse"));
  EXPECT_EQ(text.find("ddp/w2/block"), text.rfind("ddp/w2/block"));
  EXPECT_THAT(text, Not(HasSubstr(" low ")));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 90u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(DiffTable, CsvHasEveryRowsNameAndNumbers) {
  const Table table = diff_table(made(sides()));
  const std::string text = to_csv({&table});
  EXPECT_THAT(text, HasSubstr("row,metric,unit,old,new,change_percent,interval,low_percent,"
                              "high_percent,verdict,status\n"));
  EXPECT_THAT(text, HasSubstr("\"ddp/w2/block\",\"peak\",\"MiB\",3,3,0,,,,\"same\","));
  EXPECT_THAT(text, HasSubstr("\"fsdp/w2/block\",\"result\","));
  EXPECT_THAT(text, HasSubstr("\"fedcba9876543210\""));
}

TEST(DiffFooter, CountsAndMissingRows) {
  const std::string text = diff_footer(made(sides()));
  EXPECT_THAT(text, HasSubstr("3 worse, 0 better, 5 the same or no difference, 1 different"));
  EXPECT_THAT(text, HasSubstr("Only old zero3/w2/block"));
  EXPECT_THAT(text, Not(HasSubstr("Only new")));
  EXPECT_THAT(text, Not(HasSubstr("Too few")));
}

TEST(DiffFooter, TooFewSaysWhatWouldDo) {
  const ResultFile file =
      parse_results("a.json", document_with({result_with("ddp", steady(1, 100e6, 4))}).dump());
  const Diff diff = made({file, file});
  EXPECT_THAT(diff_footer(diff), HasSubstr("1 repetition of 4 steps"));
  EXPECT_THAT(diff_footer(diff), HasSubstr("--repetitions"));
  EXPECT_THAT(diff_table(diff).render(), HasSubstr("n/m"));
}

TEST(DiffWarning, NamesSomeOfTheKeys) {
  Diff diff;
  EXPECT_EQ(diff_warning(diff), "");
  for (int i = 0; i < 8; ++i) diff.differences.push_back("config.key" + std::to_string(i));
  const std::string text = diff_warning(diff);
  EXPECT_THAT(text, HasSubstr("config.key5"));
  EXPECT_THAT(text, Not(HasSubstr("config.key6")));
  EXPECT_THAT(text, HasSubstr("and 2 more"));
}

TEST(DiffJson, BaseUnitsAndVerdicts) {
  const Sides both = sides();
  const json document = diff_json(made(both), both.before, both.after);
  EXPECT_EQ(document["schema_version"], 1);
  EXPECT_EQ(document["kind"], "diff");
  EXPECT_EQ(document["old"]["path"], "old.json");
  EXPECT_EQ(document["only_old"], json({"zero3/w2/block"}));
  const json& step = document["lines"][0];
  EXPECT_EQ(step["row"], "ddp/w2/block");
  EXPECT_EQ(step["metric"], "step_time");
  EXPECT_EQ(step["unit"], "ns");
  EXPECT_NEAR(step["old"].get<double>(), 100e6, 1e6);
  EXPECT_NEAR(step["change"].get<double>(), 0.1, 1e-9);
  EXPECT_LT(step["interval_95"][0].get<double>(), 0.1);
  EXPECT_EQ(step["verdict"], "worse");
  EXPECT_EQ(step["resampled"], "repetition");
  const json& wrong = document["lines"].back();
  EXPECT_EQ(wrong["metric"], "result");
  EXPECT_EQ(wrong["new"], "WRONG w: a|b");
  EXPECT_FALSE(wrong.contains("change"));
}

}  // namespace
}  // namespace shardbench::bench

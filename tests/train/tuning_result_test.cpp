#include <gtest/gtest.h>

#include "common/train/result.h"

namespace shardbench::train {
namespace {

TEST(TuningResult, TravelsWhole) {
  ops::TuningTable table;
  table.mode = ops::TuneMode::kOn;
  table.note = "a \"note\"";
  table.entries = {
      {{ops::Pass::kForward, DType::kFloat32, true, false, 3, 5, 7},
       ops::Candidate::kOneDnnLinear,
       {{ops::Candidate::kAten, 1234567890123, true}, {ops::Candidate::kOneDnnLinear, 1, true}}},
      {{ops::Pass::kWeightGrad, DType::kBFloat16, false, true, 1, std::int64_t{1} << 40, 2},
       ops::Candidate::kAten,
       {{ops::Candidate::kOneDnnMatmul, 0, false}}}};
  const ops::TuningTable back = deserialize_tuning(serialize(table));
  EXPECT_EQ(back.mode, table.mode);
  EXPECT_EQ(back.note, table.note);
  ASSERT_EQ(back.entries.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const ops::TunedEntry& a = back.entries[i];
    const ops::TunedEntry& b = table.entries[i];
    EXPECT_EQ(a.key, b.key);
    EXPECT_EQ(a.chosen, b.chosen);
    ASSERT_EQ(a.times.size(), b.times.size());
    for (std::size_t t = 0; t < a.times.size(); ++t) {
      EXPECT_EQ(a.times[t].candidate, b.times[t].candidate);
      EXPECT_EQ(a.times[t].ns, b.times[t].ns);
      EXPECT_EQ(a.times[t].right, b.times[t].right);
    }
  }
  EXPECT_EQ(deserialize_tuning(serialize(ops::TuningTable{})).mode, ops::TuneMode::kFixed);
}

}  // namespace
}  // namespace shardbench::train

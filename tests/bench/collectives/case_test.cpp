#include "bench/collectives/case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

using comm::CollectiveKind;
using comm::ReduceOp;
using ::testing::HasSubstr;

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::int64_t> sizes_of(const CollectivesRequest& request) {
  std::vector<std::int64_t> sizes;
  for (const CollectiveCase& row : plan_cases(request)) sizes.push_back(row.bytes());
  return sizes;
}

CollectivesRequest one_kind() {
  CollectivesRequest request;
  request.kinds = {CollectiveKind::kAllReduce};
  return request;
}

TEST(PlanCases, SizesGrowByFactorOrStep) {
  CollectivesRequest request = one_kind();
  request.min_bytes = 8;
  request.max_bytes = 64;
  request.factor = 2;
  EXPECT_EQ(sizes_of(request), (std::vector<std::int64_t>{8, 16, 32, 64}));
  request.step_bytes = 24;
  EXPECT_EQ(sizes_of(request), (std::vector<std::int64_t>{8, 32, 56}));
  request.step_bytes = 0;
  request.factor = 1;
  EXPECT_EQ(sizes_of(request), (std::vector<std::int64_t>{8}));
}

TEST(PlanCases, SizesAreWholeElementsAndStandOnce) {
  CollectivesRequest request = one_kind();
  request.min_bytes = 9;
  request.max_bytes = 18;
  request.step_bytes = 3;
  request.dtypes = {DType::kFloat64};
  EXPECT_EQ(sizes_of(request), (std::vector<std::int64_t>{8, 16}));
}

TEST(PlanCases, OperationsAndRootsWhereTheyApply) {
  CollectivesRequest request;
  request.min_bytes = request.max_bytes = 64;
  request.ops = {ReduceOp::kSum, ReduceOp::kMax};
  request.dtypes = {DType::kFloat32, DType::kBFloat16};
  request.root = 1;
  int reducing = 0;
  for (const CollectiveCase& row : plan_cases(request)) {
    const bool rooted =
        row.kind == CollectiveKind::kBroadcast || row.kind == CollectiveKind::kReduce;
    EXPECT_EQ(row.root, rooted ? 1 : -1);
    EXPECT_EQ(row.op.has_value(),
              row.kind != CollectiveKind::kAllGather && row.kind != CollectiveKind::kBroadcast);
    reducing += row.op ? 1 : 0;
  }
  EXPECT_EQ(plan_cases(request).size(), 2u * (3 * 2 + 2));
  EXPECT_EQ(reducing, 12);
}

TEST(PlanCases, RefusesRequestsWithoutMeaning) {
  CollectivesRequest request;
  request.min_bytes = 2;
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("one fp32 element; nearest: 4"));
  request = {};
  request.min_bytes = 64;
  request.max_bytes = 32;
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("-e 32: below -b 64"));
  request = {};
  request.root = 2;
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("--root 2"));
  request = {};
  request.dtypes = {DType::kInt64};
  request.ops = {ReduceOp::kAverage};
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("int64 has no average"));
  request.kinds = {CollectiveKind::kAllGather};
  EXPECT_EQ(refusal([&] { plan_cases(request); }), "");
  request = {};
  request.fault = CollectivesFault::parse("wrong@2,1");
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("no rank 2 of 2"));
  request.fault = CollectivesFault::parse("wrong@1,1000");
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("no row 1000"));
  request.fault = CollectivesFault::parse("wrong@1,1");
  request.checks = 0;
  EXPECT_THAT(refusal([&] { plan_cases(request); }), HasSubstr("-c 1"));
}

TEST(RequireMemory, NamesTheLargestSize) {
  CollectivesRequest request;
  request.max_bytes = std::int64_t{1} << 30;
  const std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_EQ(refusal([&] { require_memory(request, 4 * gib); }), "");
  EXPECT_EQ(refusal([&] { require_memory(request, 0); }), "");
  EXPECT_THAT(refusal([&] { require_memory(request, 2 * gib); }), HasSubstr("nearest: 512M"));
  request.symmetric = false;  // staging is a third copy
  EXPECT_THAT(refusal([&] { require_memory(request, 4 * gib); }), HasSubstr("6.00 GiB"));
}

TEST(ParseBytes, UnitsAndBadInput) {
  EXPECT_EQ(parse_bytes("-b", "8"), 8);
  EXPECT_EQ(parse_bytes("-b", "64K"), 64 << 10);
  EXPECT_EQ(parse_bytes("-b", "16m"), 16 << 20);
  EXPECT_EQ(parse_bytes("-b", "2G"), std::int64_t{2} << 30);
  EXPECT_THAT(refusal([] { parse_bytes("-b", "0"); }), HasSubstr("nearest: 1"));
  EXPECT_THAT(refusal([] { parse_bytes("-b", "-4"); }), HasSubstr("nearest: 1"));
  EXPECT_THAT(refusal([] { parse_bytes("-b", "99999T"); }), HasSubstr("too large"));
  for (const char* text : {"", "K", "1.5M", "8B", "eight", "0x10"}) {
    EXPECT_THAT(refusal([&] { parse_bytes("-b", text); }), HasSubstr("such as 8, 64K")) << text;
  }
}

TEST(Names, OursAndThoseOfNcclTests) {
  EXPECT_EQ(parse_dtype("-d", "bf16"), DType::kBFloat16);
  EXPECT_EQ(parse_dtype("-d", "half"), DType::kFloat16);
  EXPECT_EQ(parse_dtype("-d", "double"), DType::kFloat64);
  EXPECT_THAT(refusal([] { parse_dtype("-d", "fp8"); }),
              HasSubstr("fp32, fp64, bf16, fp16, int64"));
  EXPECT_EQ(parse_redop("-o", "avg"), ReduceOp::kAverage);
  EXPECT_THAT(refusal([] { parse_redop("-o", "prod"); }), HasSubstr("sum, avg, max"));
  EXPECT_EQ(parse_kind("--kinds", "reduce"), CollectiveKind::kReduce);
  EXPECT_THAT(refusal([] { parse_kind("--kinds", "barrier"); }), HasSubstr("all_reduce"));
}

TEST(Fault, FormsAndBadInput) {
  const CollectivesFault fault = CollectivesFault::parse("stall@3,12");
  EXPECT_EQ(fault.kind, CollectivesFault::Kind::kStall);
  EXPECT_EQ(fault.rank, 3);
  EXPECT_EQ(fault.row, 12);
  for (const char* text : {"", "wrong", "wrong@1", "wrong@1,0", "wrong@-1,2", "boom@1,2",
                           "wrong@1,2x", "wrong@,2", "1,2@wrong"}) {
    EXPECT_THAT(refusal([&] { CollectivesFault::parse(text); }), HasSubstr("wrong@1,3")) << text;
  }
}

}  // namespace
}  // namespace shardbench::bench

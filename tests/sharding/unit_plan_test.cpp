#include "common/sharding/unit_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "common/core/error.h"
#include "tests/sharding/shapes.h"

namespace shardbench::sharding {
namespace {

std::vector<std::string> names(const std::vector<UnitShape>& units) {
  std::vector<std::string> result;
  for (const UnitShape& unit : units) result.push_back(unit.name);
  return result;
}

std::string user_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(UnitPolicy, ParsesEveryForm) {
  EXPECT_EQ(UnitPolicy::parse("block").kind, UnitPolicy::Kind::kBlock);
  EXPECT_EQ(UnitPolicy::parse("tensor").kind, UnitPolicy::Kind::kTensor);
  EXPECT_EQ(UnitPolicy::parse("whole").kind, UnitPolicy::Kind::kWhole);
  EXPECT_EQ(UnitPolicy::parse("size:1").min_parameters, 1);
  EXPECT_EQ(UnitPolicy::parse("size:100k").min_parameters, 100'000);
  EXPECT_EQ(UnitPolicy::parse("size:2M").min_parameters, 2'000'000);
  EXPECT_EQ(UnitPolicy::parse("class:Linear").class_name, "Linear");
}

TEST(UnitPolicy, ToStringParsesBack) {
  for (const char* text : {"block", "tensor", "whole", "size:7", "size:100k", "size:2M",
                           "size:1500k", "class:Attention"}) {
    EXPECT_EQ(UnitPolicy::parse(text).to_string(), text);
  }
  EXPECT_EQ(UnitPolicy::parse("size:1000k").to_string(), "size:1M");
}

TEST(UnitPolicy, RefusesOtherTextInOneLine) {
  for (const char* text : {"", "blocks", "size", "size:", "size:0", "size:-3", "size:1.5", "size:k",
                           "size:3G", "size:9223372036854775807k", "size: 5", "class:", "class"}) {
    EXPECT_EQ(user_error_of([&] { UnitPolicy::parse(text); }),
              "--units '" + std::string(text) +
                  "' is not valid; use block, tensor, whole, size:N (elements, N may end in k or "
                  "M) or class:NAME");
  }
}

TEST(PlanUnits, EveryParameterInExactlyOneUnit) {
  for (const ModelShape& model : odd_models()) {
    for (const char* text : {"block", "tensor", "whole", "size:1", "size:50", "size:1M"}) {
      SCOPED_TRACE(model.name + " " + text);
      std::vector<int> seen(model.parameters.size(), 0);
      int anchor = -1;
      for (const UnitShape& unit : plan_units(model, UnitPolicy::parse(text))) {
        EXPECT_FALSE(unit.parameters.empty());
        EXPECT_TRUE(std::is_sorted(unit.parameters.begin(), unit.parameters.end()));
        EXPECT_GE(unit.anchor, anchor);
        anchor = unit.anchor;
        for (int parameter : unit.parameters) ++seen[static_cast<std::size_t>(parameter)];
      }
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST(PlanUnits, BlocksOfAGpt) {
  const ModelShape model = gpt_shape(3, 6, 11, 5, false);
  const auto units = plan_units(model, UnitPolicy::parse("block"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"root", "h.0", "h.1", "h.2"}));
  EXPECT_EQ(units[0].parameters, (std::vector<int>{0, 1, 38, 39, 40}));
  EXPECT_EQ(units[1].parameters.size(), 12u);
  EXPECT_EQ(model.modules[static_cast<std::size_t>(units[2].anchor)].path, "h.1");
}

TEST(PlanUnits, ChildrenOfTheRootWithoutBlocks) {
  ShapeBuilder build("mlp", "Mlp");
  const int a = build.module("fc1", "Linear");
  build.parameter(a, "weight", {3, 2});
  build.module("act", "Gelu");
  const int b = build.module("tail", "Sequence");
  build.parameter(build.module("fc2", "Linear", b), "weight", {2, 3});
  const auto units = plan_units(build.model(), UnitPolicy::parse("block"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"fc1", "tail"}));  // no empty root, no act
}

TEST(PlanUnits, WholeAndTensor) {
  const ModelShape model = gpt_shape(1, 6, 11, 5, true);
  const auto whole = plan_units(model, UnitPolicy::parse("whole"));
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].parameters.size(), model.parameters.size());
  const auto tensors = plan_units(model, UnitPolicy::parse("tensor"));
  ASSERT_EQ(tensors.size(), model.parameters.size());
  // The tied embedding is used by wte and lm_head: entered with the root, before all others.
  EXPECT_EQ(tensors[0].name, "wte.weight");
  EXPECT_EQ(tensors[0].anchor, 0);
  EXPECT_EQ(tensors[2].name, "h.0.ln_1.weight");
  EXPECT_EQ(model.modules[static_cast<std::size_t>(tensors[2].anchor)].path, "h.0.ln_1");
}

TEST(PlanUnits, ClassSelectsNestedModules) {
  ShapeBuilder build("nest", "Net");
  const int outer = build.module("outer", "Box");
  build.parameter(outer, "w", {4});
  const int inner = build.module("inner", "Box", outer);
  build.parameter(inner, "w", {3});
  build.parameter(build.module("leaf", "Leaf", inner), "w", {2});
  build.parameter(0, "own", {1});
  const auto units = plan_units(build.model(), UnitPolicy::parse("class:Box"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"root", "outer", "outer.inner"}));
  EXPECT_EQ(units[0].parameters, (std::vector<int>{3}));
  EXPECT_EQ(units[1].parameters, (std::vector<int>{0}));
  EXPECT_EQ(units[2].parameters, (std::vector<int>{1, 2}));
}

TEST(PlanUnits, UnknownClassNamesTheClasses) {
  const ModelShape model = gpt_shape(1, 6, 11, 5, true);
  EXPECT_EQ(user_error_of([&] { plan_units(model, UnitPolicy::parse("class:Conv")); }),
            "--units class:Conv matches no module of gpt; its classes are Gpt2, Embedding, "
            "TransformerBlock, LayerNorm, Attention, Linear, Mlp");
}

TEST(PlanUnits, SizeIsBottomUp) {
  ShapeBuilder build("sizes", "Net");
  const int a = build.module("a", "Box");
  build.parameter(build.module("x", "Leaf", a), "w", {60});
  build.parameter(build.module("y", "Leaf", a), "w", {30});
  build.parameter(build.module("z", "Leaf", a), "w", {25});
  build.parameter(build.module("b", "Leaf"), "w", {40});
  // x alone reaches 50; y and z do so together, in a; b stays with the root.
  const auto units = plan_units(build.model(), UnitPolicy::parse("size:50"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"root", "a", "a.x"}));
  EXPECT_EQ(units[1].parameters, (std::vector<int>{1, 2}));
  // At 56, y and z together (55) are too few.
  EXPECT_EQ(names(plan_units(build.model(), UnitPolicy::parse("size:56"))),
            (std::vector<std::string>{"root", "a.x"}));
}

TEST(PlanUnits, TiedParameterMovesToTheLowestCommonAncestor) {
  ShapeBuilder build("tied", "Net");
  const int group = build.module("group", "TransformerBlock");
  const int left = build.module("left", "Side", group);
  const int shared = build.parameter(left, "w", {4});
  const int right = build.module("right", "Side", group);
  build.parameter(right, "w", {3});
  const int far = build.module("far", "Side");
  build.parameter(far, "w", {2});
  build.tie(shared, right);
  // Users left and right: their common unit under class:Side would be none but the root.
  auto units = plan_units(build.model(), UnitPolicy::parse("class:Side"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"root", "group.right", "far"}));
  EXPECT_EQ(units[0].parameters, (std::vector<int>{shared}));
  // Under block both fall into `group`.
  units = plan_units(build.model(), UnitPolicy::parse("block"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"root", "group"}));
  EXPECT_EQ(units[1].parameters, (std::vector<int>{0, 1}));
  // Under tensor it is entered with `group`, the lowest module that holds both users.
  units = plan_units(build.model(), UnitPolicy::parse("tensor"));
  EXPECT_EQ(units[0].name, "group.left.w");
  EXPECT_EQ(units[0].anchor, group);
}

TEST(PlanUnits, TiedAcrossTheTreeMovesToTheRoot) {
  ShapeBuilder build("tied", "Net");
  const int a = build.module("a", "TransformerBlock");
  const int shared = build.parameter(a, "w", {4});
  const int b = build.module("b", "TransformerBlock");
  build.parameter(b, "w", {4});
  build.tie(shared, b);
  const auto units = plan_units(build.model(), UnitPolicy::parse("block"));
  EXPECT_EQ(names(units), (std::vector<std::string>{"root", "b"}));
  EXPECT_EQ(units[0].parameters, (std::vector<int>{shared}));
}

}  // namespace
}  // namespace shardbench::sharding

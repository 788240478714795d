#include "common/sharding/unit_plan.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "common/core/error.h"

namespace shardbench::sharding {
namespace {

[[noreturn]] void throw_invalid(const std::string& text) {
  throw UserError::format(
      "--units '{}' is not valid; use block, tensor, whole, size:N (elements, N may end in k or M) "
      "or class:NAME",
      text);
}

/// "100000", "100k", "2M"; at least 1.
std::int64_t parse_elements(std::string_view digits, const std::string& text) {
  std::int64_t scale = 1;
  if (digits.ends_with('k')) scale = 1'000;
  if (digits.ends_with('M')) scale = 1'000'000;
  if (scale > 1) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 1 ||
      value > std::numeric_limits<std::int64_t>::max() / scale) {
    throw_invalid(text);
  }
  return value * scale;
}

bool has_class(const ModelShape& model, std::string_view name) {
  return std::any_of(model.modules.begin(), model.modules.end(),
                     [&](const ModuleShape& module) { return module.class_name == name; });
}

/// The model's classes in the order in which they first appear: "GPT, Embedding, Linear".
std::string class_list(const ModelShape& model) {
  std::vector<std::string_view> names;
  for (const ModuleShape& module : model.modules) {
    if (std::find(names.begin(), names.end(), module.class_name) == names.end()) {
      names.push_back(module.class_name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void select_class(const ModelShape& model, std::string_view name, std::vector<bool>& selected) {
  for (std::size_t i = 0; i < selected.size(); ++i) {
    if (model.modules[i].class_name == name) selected[i] = true;
  }
}

/// Modules whose class is called a block, or the root's children in a model that has none.
void select_blocks(const ModelShape& model, std::vector<bool>& selected) {
  const auto is_block = [](const ModuleShape& m) { return m.class_name.ends_with("Block"); };
  const bool any = std::any_of(model.modules.begin(), model.modules.end(), is_block);
  for (std::size_t i = 1; i < selected.size(); ++i) {
    selected[i] = any ? is_block(model.modules[i]) : model.modules[i].parent == 0;
  }
}

void select_by_size(const ModelShape& model, std::int64_t min_parameters,
                    std::vector<bool>& selected) {
  std::vector<std::int64_t> untaken(model.modules.size(), 0);
  for (const ParameterShape& parameter : model.parameters) {
    untaken[parameter.module] += parameter.numel();
  }
  // Children stand behind their parent, so walking backwards is bottom-up.
  for (std::size_t i = model.modules.size(); i-- > 1;) {
    if (untaken[i] >= min_parameters) {
      selected[i] = true;
    } else {
      untaken[model.modules[i].parent] += untaken[i];
    }
  }
}

/// Which modules start a unit. The root always does.
std::vector<bool> select_modules(const ModelShape& model, const UnitPolicy& policy) {
  std::vector<bool> selected(model.modules.size(), false);
  selected[0] = true;
  switch (policy.kind) {
    case UnitPolicy::Kind::kWhole:
      break;
    case UnitPolicy::Kind::kTensor:
      selected.assign(model.modules.size(), true);
      break;
    case UnitPolicy::Kind::kBlock:
      select_blocks(model, selected);
      break;
    case UnitPolicy::Kind::kSize:
      select_by_size(model, policy.min_parameters, selected);
      break;
    case UnitPolicy::Kind::kClass:
      if (!has_class(model, policy.class_name)) {
        throw UserError::format("--units class:{} matches no module of {}; its classes are {}",
                                policy.class_name, model.name, class_list(model));
      }
      select_class(model, policy.class_name, selected);
      break;
  }
  return selected;
}

/// The unit (by anchor) that a use of a parameter in `module` falls into.
int anchor_of(const ModelShape& model, const std::vector<bool>& selected, int module) {
  while (!selected[module]) module = model.modules[module].parent;
  return module;
}

int common_ancestor(const ModelShape& model, int a, int b) {
  // Parents have smaller indices, so the larger of the two can always step up.
  while (a != b) (a > b ? a : b) = model.modules[std::max(a, b)].parent;
  return a;
}

int parameter_anchor(const ModelShape& model, const std::vector<bool>& selected,
                     const ParameterShape& parameter) {
  const int anchor = anchor_of(model, selected, parameter.module);
  int ancestor = parameter.module;
  bool same = true;
  for (int user : parameter.also_used_by) {
    ancestor = common_ancestor(model, ancestor, user);
    same = same && anchor_of(model, selected, user) == anchor;
  }
  return same ? anchor : anchor_of(model, selected, ancestor);
}

}  // namespace

UnitPolicy UnitPolicy::parse(const std::string& text) {
  UnitPolicy policy;
  const std::string_view view = text;
  if (view == "block") {
    policy.kind = Kind::kBlock;
  } else if (view == "tensor") {
    policy.kind = Kind::kTensor;
  } else if (view == "whole") {
    policy.kind = Kind::kWhole;
  } else if (view.starts_with("size:")) {
    policy.kind = Kind::kSize;
    policy.min_parameters = parse_elements(view.substr(5), text);
  } else if (view.starts_with("class:") && view.size() > 6) {
    policy.kind = Kind::kClass;
    policy.class_name = view.substr(6);
  } else {
    throw_invalid(text);
  }
  return policy;
}

std::string UnitPolicy::to_string() const {
  switch (kind) {
    case Kind::kBlock:
      return "block";
    case Kind::kTensor:
      return "tensor";
    case Kind::kWhole:
      return "whole";
    case Kind::kSize:
      if (min_parameters % 1'000'000 == 0)
        return fmt::format("size:{}M", min_parameters / 1'000'000);
      if (min_parameters % 1'000 == 0) return fmt::format("size:{}k", min_parameters / 1'000);
      return fmt::format("size:{}", min_parameters);
    case Kind::kClass:
      return "class:" + class_name;
  }
  return {};
}

std::vector<UnitShape> plan_units(const ModelShape& model, const UnitPolicy& policy) {
  SHARDBENCH_CHECK(!model.modules.empty());
  const std::vector<bool> selected = select_modules(model, policy);
  std::vector<std::vector<int>> by_anchor(model.modules.size());
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const int anchor = parameter_anchor(model, selected, model.parameters[i]);
    by_anchor[anchor].push_back(static_cast<int>(i));
  }
  std::vector<UnitShape> units;
  for (std::size_t i = 0; i < by_anchor.size(); ++i) {
    const int anchor = static_cast<int>(i);
    if (by_anchor[i].empty()) continue;
    if (policy.kind == UnitPolicy::Kind::kTensor) {
      for (int parameter : by_anchor[i]) {
        units.push_back({model.parameters[parameter].name, anchor, {parameter}});
      }
    } else {
      units.push_back({anchor == 0 ? "root" : model.modules[i].path, anchor, by_anchor[i]});
    }
  }
  return units;
}

bool is_read_in_backward(const ModelShape& model, const std::vector<int>& parameters) {
  return !std::all_of(parameters.begin(), parameters.end(), [&](int parameter) {
    return model.parameters[parameter].is_looked_up_only();
  });
}

}  // namespace shardbench::sharding

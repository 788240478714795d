#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/layout/report.h"
#include "common/sharding/layout.h"

namespace shardbench::bench {
namespace {

using json = nlohmann::ordered_json;

json tensor_json(const sharding::ParameterShape& parameter, std::size_t index,
                 const Layout& layout) {
  json out = {{"name", parameter.name}};
  switch (layout.placement.sharded()) {
    case Placing::kWhole:
      break;
    case Placing::kOwner:
      out["owner"] = layout.owner[index];
      break;
    case Placing::kRows: {
      json runs = json::array();
      std::int64_t begin = 0;
      for (const sharding::SliceRun& run :
           sharding::slice_runs(parameter.rows(), layout.world_size)) {
        runs.push_back({{"first_rank", run.first_rank},
                        {"last_rank", run.last_rank},
                        {"first_row", begin},
                        {"rows_per_rank", run.count}});
        begin += run.count * (run.last_rank - run.first_rank + 1);
      }
      out["rows"] = std::move(runs);
      break;
    }
  }
  return out;
}

json unit_json(const UnitLayout& unit) {
  json out = {{"name", unit.name},
              {"tensors", unit.tensors},
              {"elements", unit.elements},
              {"padding_bytes", unit.padding_bytes},
              {"states_max_bytes", unit.max_bytes},
              {"states_mean_bytes", unit.mean_bytes},
              {"balance", unit.balance()}};
  if (unit.gathers >= 0) out["gathers"] = unit.gathers;
  if (unit.scatters >= 0) out["scatters"] = unit.scatters;
  return out;
}

json ranks_json(const Layout& layout) {
  json ranks = json::array();
  for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
    const RankBytes& rank = layout.ranks[r];
    ranks.push_back({{"rank", r},
                     {"param_bytes", rank.param},
                     {"grad_bytes", rank.grad},
                     {"optimizer_bytes", rank.optimizer},
                     {"persistent_bytes", rank.persistent()},
                     {"padding_bytes", rank.padding}});
    if (!layout.sent_bytes.empty()) ranks.back()["sent_bytes"] = layout.sent_bytes[r];
  }
  return ranks;
}

json layout_json(const LayoutReport& report, const Layout& layout, bool details) {
  json out = {{"strategy", layout.placement.strategy},
              {"world_size", layout.world_size},
              {"persistent_bytes",
               {{"min", layout.min_bytes}, {"mean", layout.mean_bytes}, {"max", layout.max_bytes}}},
              {"balance", layout.balance()},
              {"fullest_rank", layout.fullest_rank},
              {"ranks_without", layout.ranks_without},
              {"padding_bytes", layout.padding_bytes}};
  if (!layout.sent_bytes.empty()) {
    const auto [least, most] = std::ranges::minmax(layout.sent_bytes);
    out["sent_bytes"] = {{"min", least}, {"mean", layout.mean_sent_bytes()}, {"max", most}};
  }
  if (!details) return out;
  json units = json::array();
  for (const UnitLayout& unit : unit_layouts(report.model, layout, report.units)) {
    units.push_back(unit_json(unit));
  }
  json tensors = json::array();
  for (std::size_t i = 0; i < report.model.parameters.size(); ++i) {
    tensors.push_back(tensor_json(report.model.parameters[i], i, layout));
  }
  out["units"] = std::move(units);
  out["tensors"] = std::move(tensors);
  out["per_rank"] = ranks_json(layout);
  return out;
}

}  // namespace

json layout_config_json(const LayoutReport& report) {
  json tensors = json::array();
  for (const sharding::ParameterShape& parameter : report.model.parameters) {
    tensors.push_back({{"name", parameter.name},
                       {"shape", parameter.dims},
                       {"elements", parameter.numel()},
                       {"requires_grad", parameter.requires_grad}});
  }
  return {{"model", {{"name", report.model.name}, {"params", report.model.parameter_count()}}},
          {"units", report.options.units.to_string()},
          {"optimizer", {{"name", "adamw"}}},
          {"recipe",
           {{"param_dtype", name_of(report.options.compute_dtype)},
            {"gather_dtype", name_of(report.options.compute_dtype)},
            {"reduce_dtype", name_of(report.options.reduce_dtype)},
            {"grad_dtype", "fp32"},
            {"master_dtype", "fp32"},
            {"state_dtype", "fp32"}}},
          {"tensors", std::move(tensors)}};
}

bool layout_details(const LayoutReport& report, LayoutTable kind) {
  constexpr std::size_t kMany = 64;
  const bool brief = kind == LayoutTable::kBrief || kind == LayoutTable::kSummary;
  return report.layouts.size() <= kMany || !brief;
}

json layouts_json(const LayoutReport& report, bool details) {
  json layouts = json::array();
  for (const Layout& layout : report.layouts) {
    layouts.push_back(layout_json(report, layout, details));
  }
  return layouts;
}

}  // namespace shardbench::bench

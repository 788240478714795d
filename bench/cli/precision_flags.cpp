#include "bench/cli/flags.h"
#include "bench/cli/parse.h"

namespace shardbench::cli {

void add_dtype_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Work";
  const auto dtype = [&](const std::string& name, DType train::StrategyOptions::*target,
                         const std::string& help) {
    add_value(app, name, "fp32|bf16|fp16", help,
              [&flags, name, target](const std::string& text) {
                parse_choice(name, text, {"fp32", "bf16", "fp16"});
                for (const DType known : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
                  if (name_of(known) == text) flags.options.*target = known;
                }
              })
        ->default_str("fp32")
        ->group(group);
  };
  dtype("--dtype", &train::StrategyOptions::compute_dtype,
        "what operations compute in and weights travel as; masters, gradients that are kept and "
        "optimizer state stay fp32");
  dtype("--reduce-dtype", &train::StrategyOptions::reduce_dtype, "what gradients travel as");
}

void add_precision_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Work";
  add_dtype_flags(app, flags);
  add_value(app, "--loss-scale", "dynamic|X",
            "factor of the loss, for fp16: dynamic (from 65536: half of it after an overflow, "
            "twice after 2000 good steps) or a number",
            [&](const std::string& text) { flags.loss_scale = train::LossScale::parse(text); })
      ->group(group);
}

}  // namespace shardbench::cli

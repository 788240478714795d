#include "bench/cli/flags.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "bench/cli/parse.h"
#include "common/core/error.h"
#include "common/core/format.h"
#include "common/models/config.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::cli {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr int kMostRanks = 64;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

CLI::Option* add_real(CLI::App& app, const std::string& name, double min, const std::string& help,
                      double* target, double max = kNoLimit, bool above = false) {
  return add_value(app, name, "X", help, [=](const std::string& text) {
    *target = parse_real(name, text, min, max, above);
  });
}

/// Messages of parsers that know nothing of flags get the flag's name in front.
template <typename Parse>
auto named(const std::string& flag, Parse parse) {
  try {
    return parse();
  } catch (const UserError& error) {
    const std::string text = error.what();
    throw UserError(text.rfind("--", 0) == 0 ? text : flag + ": " + text);
  }
}

}  // namespace

CLI::Option* add_value(CLI::App& app, const std::string& names, const std::string& value,
                       const std::string& help, std::function<void(const std::string&)> set) {
  return app
      .add_option_function<std::string>(
          names, [set = std::move(set)](const std::string& text) { set(text); }, help)
      ->type_name(value);
}

CLI::Option* add_count(CLI::App& app, const std::string& names, std::int64_t min, std::int64_t max,
                       const std::string& help, std::function<void(std::int64_t)> set) {
  const std::string flag = names.substr(0, names.find(','));
  return add_value(app, names, "N", help, [=, set = std::move(set)](const std::string& text) {
    set(parse_count(flag, text, min, max));
  });
}

CLI::Option* add_switch(CLI::App& app, const std::string& name, const std::string& help,
                        bool* target) {
  return app.add_flag(name, *target, help)->disable_flag_override();
}

void add_model_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Model";
  add_value(app, "--model", "NAME", "preset: " + join(models::preset_names()),
            [&](const std::string& text) {
              flags.model = named("--model", [&] { return models::preset(text); }).name;
            })
      ->default_str(flags.model)
      ->group(group);
  const auto size = [&](const std::string& name, std::optional<std::int64_t>& target,
                        const std::string& help) {
    add_count(app, name, 1, kMost, help + " (over the preset's)", [&target](std::int64_t n) {
      target = n;
    })->group(group);
  };
  size("--layers", flags.layers, "blocks, or hidden layers of the MLP");
  size("--heads", flags.heads, "attention heads");
  size("--hidden", flags.hidden, "width");
  size("--vocab", flags.vocab, "token values");
  add_switch(app, "--untied", "give the output head its own weights", &flags.untied)->group(group);
  add_real(app, "--dropout", 0, "dropout probability", &flags.dropout, 0.999)
      ->default_str("0")
      ->group(group);
  // One name, two uses: a size of the model, and a note for the result file.
  app.add_option_function<std::vector<std::string>>(
         "--context",
         [&](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             if (text.find('=') != std::string::npos) {
               flags.context.insert(parse_pair("--context", text));
             } else {
               flags.positions = parse_count("--context", text, 1, kMost);
             }
           }
         },
         "N: longest sequence of the model; K=V: a note for the result file (repeatable)")
      ->type_name("N|K=V")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
}

void add_work_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Work";
  add_count(app, "--batch", 1, kMost, "sequences per rank and micro-batch [4]",
            [&](std::int64_t n) { flags.batch = n; })
      ->group(group);
  add_count(app, "--global-batch", 1, kMost,
            "sequences per step over all ranks, instead of --batch",
            [&](std::int64_t n) { flags.global_batch = n; })
      ->group(group);
  add_count(app, "--seq", 1, kMost, "tokens per sequence; never changes the parameters [128]",
            [&](std::int64_t n) { flags.seq = n; })
      ->group(group);
  add_count(app, "--grad-accum", 1, 4096, "micro-batches per step",
            [&](std::int64_t n) { flags.accumulation = static_cast<int>(n); })
      ->default_str("1")
      ->group(group);
  add_value(app, "--data", "synthetic|FILE|DIR",
            "training text: a file, or a folder of *.txt [the Shakespeare corpus]",
            [&](const std::string& text) {
              if (text.empty()) throw UserError("--data: give synthetic, a file or a folder");
              flags.data = text;
            })
      ->group(group);
  add_value(app, "--seed", "N", "of initial weights, samples and dropout",
            [&](const std::string& text) { flags.seed = parse_seed("--seed", text); })
      ->default_str("1")
      ->group(group);
  add_value(app, "--optimizer", "NAME", "adamw or sgd (with momentum)",
            [&](const std::string& text) {
              flags.optimizer.kind = parse_choice("--optimizer", text, {"adamw", "sgd"}) == "sgd"
                                         ? train::OptimizerKind::kSgd
                                         : train::OptimizerKind::kAdamW;
            })
      ->default_str("adamw")
      ->group(group);
  add_real(app, "--lr", 0, "learning rate", &flags.optimizer.lr)->default_str("1e-3")->group(group);
  add_count(app, "--lr-warmup", 0, kMost, "steps over which it rises linearly to that",
            [&](std::int64_t n) { flags.optimizer.lr_warmup = static_cast<int>(n); })
      ->default_str("0")
      ->group(group);
  add_real(app, "--weight-decay", 0, "on matrices", &flags.optimizer.weight_decay)
      ->default_str("0.1")
      ->group(group);
  add_real(app, "--max-norm", 0, "clip the gradient to this norm; 0: no clipping", &flags.max_norm)
      ->default_str("0")
      ->group(group);
}

void add_strategy_flags(CLI::App& app, Flags& flags) {
  const std::string group = "How strategies work";
  add_value(app, "--units,--wrap", "POLICY",
            "what is unsharded together: block, tensor, whole, size:N or class:NAME",
            [&](const std::string& text) {
              flags.options.units =
                  named("--units", [&] { return sharding::UnitPolicy::parse(text); });
            })
      ->default_str("block")
      ->group(group);
  add_value(app, "--reshard-after-forward", "WHEN", "true, false, or auto (all but the root unit)",
            [&](const std::string& text) {
              const std::string when =
                  parse_choice("--reshard-after-forward", text, {"true", "false", "auto"});
              flags.options.reshard_after_forward =
                  when == "true"
                      ? train::Reshard::kTrue
                      : (when == "false" ? train::Reshard::kFalse : train::Reshard::kAuto);
            })
      ->default_str("true")
      ->group(group);
  // Before the two that it sets: options are read in this order, so that those win.
  add_count(app, "--prefetch", 0, 1024, "sets both of the next two", [&](std::int64_t n) {
    flags.options.forward_prefetch = flags.options.backward_prefetch = static_cast<int>(n);
  })->group(group);
  add_count(app, "--forward-prefetch", 0, 1024, "units gathered ahead in forward",
            [&](std::int64_t n) { flags.options.forward_prefetch = static_cast<int>(n); })
      ->default_str("1")
      ->group(group);
  add_count(app, "--backward-prefetch", 0, 1024, "units gathered ahead in backward",
            [&](std::int64_t n) { flags.options.backward_prefetch = static_cast<int>(n); })
      ->default_str("1")
      ->group(group);
  add_real(app, "--bucket-cap-mib", 0, "largest gradient bucket of ddp",
           &flags.options.bucket_cap_mib, 1 << 20, true)
      ->default_str("25")
      ->group(group);
  add_value(app, "--backend", "NAME", "what moves bytes: auto or shm (shared memory)",
            [](const std::string& text) {
              parse_choice("--backend", text, {"auto", "shm"});
            })
      ->default_str("auto")
      ->group(group);
  add_value(app, "--link", "RATE,LATENCY", "emulate a network, such as 1Gbit,20us",
            [&](const std::string& text) {
              flags.link = named("--link", [&] { return comm::LinkModel::parse(text); });
            })
      ->group(group);
}

void add_measurement_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Running";
  add_switch(app, "--deterministic", "two invocations give the same bits", &flags.deterministic)
      ->group(group);
  add_count(app, "--threads", 1, 1024, "per rank",
            [&](std::int64_t n) { flags.threads = static_cast<int>(n); })
      ->default_str("1")
      ->group(group);
  add_value(app, "--timeout", "S", "seconds after which a rank that waits gives up",
            [&](const std::string& text) {
              flags.timeout_s = parse_real("--timeout", text, 0, 1e6, true);
            })
      ->default_str("300")
      ->group(group);
  add_value(app, "--inject", "KIND@RANK,STEP,WHERE",
            "plant a fault: throw, kill, exit or stall, such as kill@1,3,backward",
            [&](const std::string& text) {
              flags.inject = named("--inject", [&] { return train::Injection::parse(text); });
            })
      ->group(group);
}

void add_output_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Output";
  add_value(app, "--format", "table|json", "what goes to stdout",
            [&](const std::string& text) {
              flags.format = parse_choice("--format", text, {"table", "json"});
            })
      ->default_str("table")
      ->group(group);
  add_value(app, "--out", "FILE", "write the results there, as JSON", [&](const std::string& text) {
    if (text.empty()) throw UserError("--out: give the name of a file");
    flags.out = text;
  })->group(group);
  add_switch(app, "--list", "list models, strategies and policies", &flags.list)->group(group);
  add_switch(app, "--dry-run", "check the request and say what would run", &flags.dry_run)
      ->group(group);
  add_switch(app, "--quiet", "no context, progress or warnings on stderr", &flags.quiet)
      ->group(group);
}

}  // namespace shardbench::cli

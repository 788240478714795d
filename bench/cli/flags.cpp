#include "bench/cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/cli/parse.h"
#include "bench/compare/document.h"
#include "common/core/error.h"
#include "common/core/format.h"
#include "common/models/config.h"
#include "common/models/fields.h"
#include "common/sharding/unit_plan.h"

namespace shardbench::cli {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr int kMostRanks = 64;
constexpr int kMostAhead = 1024;
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

/// The first value of a list; a list of one is no sweep and becomes empty.
template <typename Value>
Value first_of(std::vector<Value>& values) {
  Value first = values.front();
  if (values.size() == 1) values.clear();
  return first;
}

/// Items of a list, parsed; none may mean the same as another.
template <typename Parse, typename Meaning>
auto items_of(const std::string& flag, const std::string& text,
              const std::vector<std::string>& items, Parse parse, Meaning meaning) {
  std::vector<decltype(parse(text))> values;
  std::vector<std::string> meanings;
  for (const std::string& item : items) {
    values.push_back(named(flag, [&] { return parse(item); }));
    meanings.push_back(meaning(values.back()));
  }
  require_distinct(flag, text, meanings);
  return values;
}

std::vector<std::int64_t> counts(const std::string& flag, const std::string& text, std::int64_t min,
                                 std::int64_t max) {
  return items_of(
      flag, text, parse_list(flag, text),
      [&](const std::string& item) { return parse_count(flag, item, min, max); },
      [](std::int64_t n) { return fmt::format("{}", n); });
}

std::vector<sharding::UnitPolicy> unit_policies(const std::string& text) {
  return items_of("--units", text, parse_list("--units", text), sharding::UnitPolicy::parse,
                  [](const sharding::UnitPolicy& policy) { return policy.to_string(); });
}

std::vector<double> bucket_caps(const std::string& text) {
  const std::string flag = "--bucket-cap-mib";
  return items_of(
      flag, text, parse_list(flag, text),
      [&](const std::string& item) { return parse_real(flag, item, 0, 1 << 20, true); },
      [](double cap) { return fmt::format("{}", cap); });
}

/// "none" stands alone, RATE and LATENCY in pairs.
std::vector<std::optional<comm::LinkModel>> links(const std::string& text) {
  std::vector<std::string> items;
  std::string rate;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    if (part.empty()) {
      throw UserError::format("--link '{}': an item is empty; give RATE,LATENCY or none", text);
    }
    if (rate.empty() && part != "none") {
      rate = part;
      continue;
    }
    items.push_back(rate.empty() ? part : rate + "," + part);
    rate.clear();
  }
  if (!rate.empty()) items.push_back(rate);  // refused below, with the valid form
  return items_of(
      "--link", text, items,
      [](const std::string& item) -> std::optional<comm::LinkModel> {
        if (item == "none") return std::nullopt;
        return comm::LinkModel::parse(item);
      },
      [](const auto& link) { return link ? link->to_string() : std::string("none"); });
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
  add_value(app, "--model", "NAME|FILE.json",
            "a JSON file that describes one, or a preset: " + join(models::preset_names()),
            [&](const std::string& text) { flags.model = text; })
      ->default_str(flags.model)
      ->group(group);
  const auto size = [&](const std::string& name, std::optional<std::int64_t>& target,
                        const std::string& help) {
    std::string key = name.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    const auto most = static_cast<std::int64_t>(models::field(key).max);
    add_count(app, name, 1, most, help + " (over the model's)", [&target](std::int64_t n) {
      target = n;
    })->group(group);
  };
  size("--layers", flags.layers, "blocks, or hidden layers of the MLP");
  size("--heads", flags.heads, "attention heads");
  size("--kv-heads", flags.kv_heads, "heads of keys and values of a Llama");
  size("--hidden", flags.hidden, "width");
  size("--feed-forward", flags.feed_forward, "inner width of a Llama's blocks");
  size("--vocab", flags.vocab, "token values");
  size("--split-head", flags.split_head, "units that an untied output head is cut into");
  add_switch(app, "--untied", "give the output head its own weights", &flags.untied)->group(group);
  add_value(
      app, "--dropout", "X", "dropout probability",
      [&](const std::string& text) { flags.dropout = parse_real("--dropout", text, 0, 0.999); })
      ->default_str("0")
      ->group(group);
  // One name, two uses: a size of the model, and a note for the result file.
  app.add_option_function<std::vector<std::string>>(
         "--context",
         [&](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             if (text.find('=') != std::string::npos) {
               add_note(flags.context, bench::own_context_keys(), text);
             } else {
               if (flags.positions) {
                 throw UserError::format(
                     "--context: the longest sequence is given twice, {} and {}: leave one",
                     *flags.positions, text);
               }
               const auto most = static_cast<std::int64_t>(models::field("context").max);
               flags.positions = parse_count("--context", text, 1, most);
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
  add_value(app, "--batch", "N[,N..]", "sequences per rank and micro-batch; a list sweeps [4]",
            [&](const std::string& text) {
              flags.sweep.batches = counts("--batch", text, 1, kMost);
              flags.batch = first_of(flags.sweep.batches);
            })
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
  add_precision_flags(app, flags);
}

void add_strategy_flags(CLI::App& app, Flags& flags) {
  const std::string group = "How strategies work";
  add_value(app, "--units,--wrap", "POLICY[,..]",
            "what is unsharded together: block, tensor, whole, size:N or class:NAME; a list sweeps",
            [&](const std::string& text) {
              flags.sweep.units = unit_policies(text);
              flags.options.units = first_of(flags.sweep.units);
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
  add_value(app, "--prefetch", "N[,N..]", "sets both of the next two; a list sweeps",
            [&](const std::string& text) {
              for (std::int64_t n : counts("--prefetch", text, 0, kMostAhead)) {
                flags.sweep.prefetches.push_back(static_cast<int>(n));
              }
              flags.options.forward_prefetch = flags.options.backward_prefetch =
                  first_of(flags.sweep.prefetches);
            })
      ->group(group);
  const auto ahead = [&](const std::string& name, int train::StrategyOptions::*target,
                         const std::string& help) {
    add_count(app, name, 0, kMostAhead, help,
              [&flags, name, target](std::int64_t n) {
                if (!flags.sweep.prefetches.empty()) {
                  throw UserError::format("{}: --prefetch sweeps both; leave one of the two out",
                                          name);
                }
                flags.options.*target = static_cast<int>(n);
              })
        ->default_str("1")
        ->group(group);
  };
  ahead("--forward-prefetch", &train::StrategyOptions::forward_prefetch,
        "units gathered ahead in forward");
  ahead("--backward-prefetch", &train::StrategyOptions::backward_prefetch,
        "units gathered ahead in backward");
  add_value(app, "--bucket-cap-mib", "X[,X..]",
            "largest gradient bucket of ddp (and zero1, zero2); a list sweeps",
            [&](const std::string& text) {
              flags.sweep.bucket_caps_mib = bucket_caps(text);
              flags.options.bucket_cap_mib = first_of(flags.sweep.bucket_caps_mib);
            })
      ->default_str("25")
      ->group(group);
  add_value(app, "--init", "HOW",
            "initial weights: deferred (each rank makes what it keeps), broadcast (rank 0's whole "
            "model) or broadcast-tensor (rank 0's, tensor by tensor)",
            [&](const std::string& text) { flags.options.init = train::parse_init(text); })
      ->default_str("deferred")
      ->group(group);
  add_switch(app, "--optimizer-in-backward",
             "step a unit's weights as soon as its gradients are reduced, so that none is kept "
             "(zero2, zero3, fsdp)",
             &flags.options.optimizer_in_backward)
      ->group(group);
  add_value(app, "--backend", "NAME", kBackendHelp,
            [&](const std::string& text) { flags.backend = parse_backend(text); })
      ->default_str("auto")
      ->group(group);
  add_value(app, "--link", "RATE,LATENCY[,..]",
            "emulate a network, such as 1Gbit,20us; a list sweeps: none,10Gbit,20us,1Gbit,20us",
            [&](const std::string& text) {
              flags.sweep.links = links(text);
              flags.link = first_of(flags.sweep.links);
            })
      ->group(group);
  add_communication_flags(app, flags);
}

void add_measurement_flags(CLI::App& app, Flags& flags) {
  const std::string group = "Running";
  add_switch(app, "--deterministic", "two invocations give the same bits", &flags.deterministic)
      ->group(group);
  add_value(app, "--autotune", "on|fixed|off",
            "how operations are computed: the fastest by measurement, once for all ranks and "
            "strategies; by a fixed rule (the default with --deterministic); by plain ATen",
            [&](const std::string& text) {
              const std::string mode = parse_choice("--autotune", text, {"on", "fixed", "off"});
              flags.autotune =
                  mode == "on" ? ops::TuneMode::kOn
                               : (mode == "fixed" ? ops::TuneMode::kFixed : ops::TuneMode::kOff);
            })
      ->default_str("on")
      ->group(group);
  add_count(app, "--threads", 1, 1024, "per rank",
            [&](std::int64_t n) { flags.threads = static_cast<int>(n); })
      ->default_str("1")
      ->group(group);
  add_value(app, "--simd", "auto|portable|avx2|avx512", kSimdHelp,
            [&](const std::string& text) { flags.simd = parse_simd(text); })
      ->default_str("auto")
      ->group(group);
  add_value(app, "--timeout", "S", "seconds after which a rank that waits gives up",
            [&](const std::string& text) {
              flags.timeout_s = parse_real("--timeout", text, 0, 1e6, true);
            })
      ->default_str("300")
      ->group(group);
  add_value(app, "--inject", "KIND@RANK,STEP,WHERE",
            "plant a fault: throw, kill, exit or stall, such as kill@1,3,backward; or "
            "slow:PERCENT of a step's time (step 0: every step)",
            [&](const std::string& text) {
              flags.inject = named("--inject", [&] { return train::Injection::parse(text); });
            })
      ->group(group);
}

void add_output_flags(CLI::App& app, Flags& flags, const std::vector<std::string>& formats) {
  const std::string group = "Output";
  add_value(app, "--format", join(formats, "|"), "what goes to stdout",
            [&flags, formats](const std::string& text) {
              flags.format = parse_choice("--format", text, formats);
            })
      ->default_str("table")
      ->group(group);
  add_value(app, "--out", "FILE", "write the results there, as JSON", [&](const std::string& text) {
    if (text.empty()) throw UserError("--out: give the name of a file");
    flags.out = text;
  })->group(group);
  add_value(app, "--rank-logs", "DIR", "a file for every rank there: its own steps and times",
            [&](const std::string& text) {
              if (text.empty()) throw UserError("--rank-logs: give the name of a folder");
              flags.rank_logs = text;
            })
      ->group(group);
  add_switch(app, "--list", "list models, strategies and policies", &flags.list)->group(group);
  add_switch(app, "--dry-run", "check the request and say what would run", &flags.dry_run)
      ->group(group);
  add_switch(app, "--quiet", "no context, progress or warnings on stderr", &flags.quiet)
      ->group(group);
}

}  // namespace shardbench::cli

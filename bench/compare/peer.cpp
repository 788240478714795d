#include "bench/compare/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/compare/compare.h"
#include "bench/compare/request.h"
#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::bench {
namespace {

std::vector<std::string> all_names() {
  std::vector<std::string> names = {"torch", "deepspeed"};
  for (const PeerKind& kind : peer_kinds()) names.push_back(kind.name);
  return names;
}

bool is_framework(const std::string& name) { return name == "torch" || name == "deepspeed"; }

UserError unknown_peer(const std::string& name) {
  return UserError::format("--peers {}: unknown; choose from {}{}", name, join(all_names()),
                           did_you_mean(name, all_names()));
}

/// What is wrong with a run that says it ended well, or "".
std::string first_gap(const PeerRun& run, const train::RunConfig& config) {
  if (run.ranks.size() != static_cast<std::size_t>(config.world_size)) {
    return fmt::format("it reports {} ranks, not {}", run.ranks.size(), config.world_size);
  }
  const auto steps = static_cast<std::size_t>(config.all_steps());
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const PeerRank& rank = run.ranks[r];
    if (rank.rank != static_cast<int>(r)) return fmt::format("rank {} is missing", r);
    if (rank.step_ns.size() != steps || rank.losses.size() != steps) {
      return fmt::format("rank {} reports {} times and {} losses of {} steps", r,
                         rank.step_ns.size(), rank.losses.size(), steps);
    }
    if (*std::min_element(rank.step_ns.begin(), rank.step_ns.end()) <= 0) {
      return fmt::format("rank {} reports a time that is not above 0", r);
    }
  }
  return {};
}

std::vector<double> mean_losses(const PeerRun& run) {
  std::vector<double> means(run.ranks.front().losses.size(), 0.0);
  for (const PeerRank& rank : run.ranks) {
    for (std::size_t s = 0; s < means.size(); ++s) means[s] += rank.losses[s];
  }
  for (double& mean : means) mean /= static_cast<double>(run.ranks.size());
  return means;
}

/// Measured steps (warm-up left out), of each its slowest rank.
std::vector<std::int64_t> slowest(const PeerRun& run, int warmup) {
  std::vector<std::int64_t> times;
  for (auto s = static_cast<std::size_t>(warmup); s < run.ranks.front().step_ns.size(); ++s) {
    times.push_back(0);
    for (const PeerRank& rank : run.ranks) times.back() = std::max(times.back(), rank.step_ns[s]);
  }
  return times;
}

/// Puts the distance of these losses into the row; the row is wrong when a bound is exceeded.
void judge(PeerRow& row, const LossBounds& bounds, const std::vector<double>& losses,
           const std::vector<train::StepRecord>& reference) {
  for (std::size_t s = 0; s < losses.size() && s < reference.size(); ++s) {
    const double expected = reference[s].loss;
    double diff = std::abs(losses[s] - expected) / std::max(std::abs(expected), 1e-30);
    if (std::isnan(diff)) diff = HUGE_VAL;
    if (s == 0) row.first_loss_diff = std::max(row.first_loss_diff, diff);
    if (diff > row.loss_diff) {
      row.loss_diff = diff;
      row.worst_step = static_cast<int>(s) + 1;
    }
    const double bound = s == 0 ? bounds.first : bounds.later;
    if (diff <= bound || row.state == Row::State::kWrong) continue;
    row.state = Row::State::kWrong;
    row.reason = fmt::format(
        "loss of step {} is {:.6f}, the reference has {:.6f}: {:.1e} apart (bound {:.0e})", s + 1,
        losses[s], expected, diff, bound);
  }
}

double largest(const std::vector<PeerRank>& ranks, std::int64_t PeerRank::*figure) {
  std::int64_t most = 0;
  for (const PeerRank& rank : ranks) most = std::max(most, rank.*figure);
  return static_cast<double>(most);
}

}  // namespace

const std::vector<PeerKind>& peer_kinds() {
  static const std::vector<PeerKind> kKinds = {
      {"ddp", "torch", "PyTorch DDP", "ddp"},
      {"zero-optimizer", "torch", "PyTorch ZeroRedundancy", "zero1"},
      {"fsdp1", "torch", "PyTorch FSDP1", "fsdp"},
      {"fsdp2", "torch", "PyTorch FSDP2", "fsdp"},
      {"fsdp2-kept", "torch", "PyTorch FSDP2 kept", "fsdp"},
      {"fsdp2-blocks", "torch", "PyTorch FSDP2 blocks", "fsdp", true},
      {"ds-zero1", "deepspeed", "DeepSpeed ZeRO-1", "zero1"},
      {"ds-zero2", "deepspeed", "DeepSpeed ZeRO-2", "zero2"},
      {"ds-zero3", "deepspeed", "DeepSpeed ZeRO-3", "zero3"}};
  return kKinds;
}

const PeerKind& peer_kind(const std::string& name) {
  for (const PeerKind& kind : peer_kinds()) {
    if (kind.name == name) return kind;
  }
  throw unknown_peer(name);
}

std::vector<std::string> choose_peers(const std::vector<std::string>& items,
                                      const std::vector<std::string>& strategies) {
  const std::set<std::string> compared(strategies.begin(), strategies.end());
  std::set<std::string> chosen;
  for (const std::string& item : items) {
    if (!is_framework(item)) {
      const PeerKind& kind = peer_kind(item);
      if (!compared.contains(kind.counterpart)) {
        throw UserError::format(
            "--peers {}: {} stands beside our {}, which is not compared; add it to --strategy",
            item, kind.title, kind.counterpart);
      }
      chosen.insert(item);
      continue;
    }
    bool found = false;
    for (const PeerKind& kind : peer_kinds()) {
      if (kind.framework != item || kind.by_blocks || !compared.contains(kind.counterpart))
        continue;
      chosen.insert(kind.name);
      found = true;
    }
    if (!found) {
      throw UserError::format("--peers {}: none of its rows stands beside {}", item,
                              join(strategies));
    }
  }
  std::vector<std::string> in_order;
  for (const PeerKind& kind : peer_kinds()) {
    if (chosen.contains(kind.name)) in_order.push_back(kind.name);
  }
  return in_order;
}

double PeerRow::rss_peak() const { return largest(ranks, &PeerRank::rss_peak); }
double PeerRow::pss() const { return largest(ranks, &PeerRank::pss); }

PeerRow failed_peer_row(const std::string& peer, int signal, const std::string& reason) {
  PeerRow row;
  row.peer = peer;
  row.state = Row::State::kFailed;
  row.signal = signal;
  row.reason = signal != 0 ? fmt::format("stopped by signal {}", signal) : reason;
  return row;
}

PeerRow make_peer_row(const std::string& peer, const train::RunConfig& config,
                      const std::vector<PeerRun>& runs,
                      const std::vector<train::StepRecord>& reference) {
  SHARDBENCH_CHECK(!runs.empty());
  const PeerRun& last = runs.back();
  if (last.failed()) {
    PeerRow row = failed_peer_row(peer, last.signal, last.failure ? last.failure->message : "");
    row.failure = last.failure;
    return row;
  }
  PeerRow row;
  row.peer = peer;
  row.repetitions = static_cast<int>(runs.size());
  for (const PeerRun& run : runs) {
    const std::string gap = first_gap(run, config);
    if (!gap.empty()) return failed_peer_row(peer, 0, "its result cannot be used: " + gap);
    judge(row, loss_bounds(config.options.compute_dtype), mean_losses(run), reference);
    row.by_repetition.push_back(slowest(run, config.warmup));
  }
  row.losses = mean_losses(last);
  row.ranks = last.ranks;
  row.versions = last.versions;
  std::vector<std::int64_t> times;
  for (const auto& repetition : row.by_repetition) {
    times.insert(times.end(), repetition.begin(), repetition.end());
  }
  row.step = summarize(std::move(times));
  row.tokens_per_s = tokens_per_second(tokens_per_step(config), row.step.median);
  return row;
}

std::string verdict_text(const PeerRow& row) {
  if (row.state == Row::State::kFailed) return "FAILED " + row.reason;
  if (row.state == Row::State::kWrong) return "WRONG " + row.reason;
  return {};
}

int exit_code(const PeerRow& row) {
  if (row.signal != 0) return 128 + row.signal;
  if (row.failure && (row.failure->reason == comm::AbortRecord::Reason::kLost ||
                      row.failure->reason == comm::AbortRecord::Reason::kTimeout)) {
    return 3;
  }
  return row.right() ? 0 : 1;
}

}  // namespace shardbench::bench

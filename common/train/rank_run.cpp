#include "common/train/rank_run.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "common/comm/comm_thread.h"
#include "common/comm/link.h"
#include "common/comm/staged.h"
#include "common/core/error.h"
#include "common/core/rank_context.h"
#include "common/memory/allocator.h"
#include "common/memory/process_memory.h"
#include "common/models/build.h"
#include "common/train/accelerator.h"
#include "common/train/agree.h"
#include "common/train/rank_log.h"
#include "common/train/strategy.h"
#include "common/train/trainer.h"

namespace shardbench::train {

namespace {

/// The faults of `--inject`, set off when the rank reaches the place.
class Injector {
 public:
  Injector(const std::optional<Injection>& injection, int rank) : injection_(injection) {
    if (injection_ && injection_->rank != rank) injection_.reset();
  }
  /// `previous_ns` is the time of the step before, 0 for the first.
  void set_step(std::int64_t step, std::int64_t previous_ns) {
    step_ = step + 1;
    // Without its own sleep, or the sleeps would grow.
    unslept_ns_ = previous_ns - std::exchange(slept_ns_, 0);
    done_ = false;
  }

  void reach(Phase phase) {
    if (!injection_ || done_ || injection_->where != name_of(phase)) return;
    if (injection_->step != step_ && injection_->step != 0) return;
    done_ = true;
    switch (injection_->kind) {
      case Injection::Kind::kSlow:
        sleep();
        break;
      case Injection::Kind::kThrow:
        throw InvariantError("fault injected by --inject throw");
      case Injection::Kind::kKill:
        raise(SIGKILL);
        break;
      case Injection::Kind::kExit:
        _exit(7);
      case Injection::Kind::kStall:
        for (;;) pause();
      case Injection::Kind::kShort:  // nothing happens here: see RunConfig::own_steps
        break;
    }
  }

 private:
  void sleep() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::nanoseconds(
        std::llround(static_cast<double>(unslept_ns_) * injection_->percent / 100)));
    slept_ns_ = std::chrono::nanoseconds(Clock::now() - start).count();
  }

  std::optional<Injection> injection_;
  std::int64_t step_ = 0;
  std::int64_t unslept_ns_ = 0;
  std::int64_t slept_ns_ = 0;
  bool done_ = false;  ///< in this step
};

std::unique_ptr<comm::Recorder> make_comm(const RunConfig& config, const comm::Seat& seat,
                                          comm::Transport transport) {
  rank_context() = {seat.rank, config.world_size, transport.ranks->backend().data()};
  if (config.options.collectives != CollectiveMode::kDirect) {
    transport.ranks = comm::with_staging(std::move(transport.ranks));
  }
  if (config.comm_thread) transport.ranks = comm::with_comm_thread(std::move(transport.ranks));
  if (config.link) transport.ranks = comm::with_link(std::move(transport.ranks), *config.link);
  return comm::record(std::move(transport.ranks), std::move(transport.wire));
}

/// Entries outside `metrics`, which the steadiness of traffic is about.
bool same_traffic(const std::vector<comm::TrafficEntry>& a,
                  const std::vector<comm::TrafficEntry>& b) {
  const auto key = [](const std::vector<comm::TrafficEntry>& entries) {
    std::vector<std::array<std::int64_t, 8>> keys;
    for (const comm::TrafficEntry& e : entries) {
      if (e.phase == Phase::kMetrics) continue;
      keys.push_back({static_cast<std::int64_t>(e.phase), static_cast<std::int64_t>(e.kind),
                      e.calls, e.payload_bytes, e.algo_bytes, e.wire.sent, e.wire.received,
                      e.wire.staging});
    }
    return keys;
  };
  return key(a) == key(b);
}

void report_memory(const RunConfig& config, const Strategy& strategy, MemoryReport& memory) {
  const memory::Tracker& tracker = memory::tracker();
  memory.peak_by_category = tracker.peak_by_category();
  memory.at_peak = tracker.at_peak();
  memory.peak = tracker.peak();
  memory.peak_phase = tracker.peak_phase();
  memory.peak_unit = tracker.peak_unit();
  memory.between_steps = tracker.live();
  std::int64_t owned = 0;
  for (const OwnedPiece& piece : strategy.owned().pieces) owned += piece.count;
  memory.padding = strategy.padding_bytes() +
                   4 * moments_of(config.optimizer) * (strategy.owned().state_extent - owned);
  const memory::ProcessMemory process = memory::process_memory();
  memory.rss_peak = process.peak_resident;
  memory.pss_peak = process.proportional;
}

}  // namespace

void prepare_process(const RunConfig& config) {
  at::set_num_threads(config.threads);
  // On a device it is the device's memory that is booked.
  if (config.device == DeviceKind::kCpu) memory::install_allocator();
  memory::release_cached();
  memory::tracker().reset_peak();
  memory::reset_peak_resident();
  ops::set_tuning(config.tuning);
  if (config.deterministic) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
}

namespace {

RankResult train_rank(const RunConfig& config, const Registry& registry, const comm::Seat& seat,
                      const RankObserver& observer) {
  const std::shared_ptr<comm::Job>& job = seat.job;
  const int rank = seat.rank;
  RankResult result;
  result.rank = rank;
  result.pid = getpid();
  result.memory.rss_start = memory::resident_memory().resident;
  Injector injector(config.inject, rank);
  comm::Transport transport = seat.connect();
  const at::Device device = device_of(transport.device);
  std::optional<Accelerator> accelerator;
  if (!device.is_cpu()) accelerator.emplace(transport.device);
  const auto on_position = [&](Phase phase, std::string_view unit) {
    job->set_position(rank, phase, unit);
    if (accelerator) accelerator->enter(phase, unit);
    injector.reach(phase);
  };
  const std::unique_ptr<comm::Recorder> comm = make_comm(config, seat, std::move(transport));
  RankLog log(config.rank_logs, config, rank, comm->backend());
  const auto source = data::open_source(config.data, config.seed, config.model.vocab);
  const Feed feed(config, *source, device);
  const std::unique_ptr<Model> model = models::build(config.model);
  model->set_device(device);
  const std::unique_ptr<Strategy> strategy = registry.find(config.strategy).make();
  strategy->attach({model.get(), comm.get(), config.options, config.seed, on_position});
  result.memory.init_peak = memory::tracker().peak();
  Trainer trainer(config, {model.get(), strategy.get(), comm.get(), &feed, on_position,
                           accelerator ? &accelerator->clock() : nullptr});
  memory::tracker().reset_peak();
  memory::tracker().record_timeline(config.timeline);

  const auto evaluate = [&](std::int64_t step, std::int64_t windows) {
    result.evaluation_losses.push_back(trainer.evaluate(windows));
    result.evaluation_steps.push_back(static_cast<int>(step));
  };
  const auto report_evaluation = [&](bool last) {
    if (!observer.evaluation) return;
    observer.evaluation(result.evaluation_steps.back(), result.evaluation_losses.back(), last);
  };
  const AgreedSteps agreed = agree_on_steps(*comm, config.own_steps(rank));
  result.shortest_rank = agreed.shortest_rank;
  const std::int64_t steps = agreed.steps;
  for (std::int64_t step = 0; step < steps; ++step) {
    injector.set_step(step, result.steps.empty() ? 0 : result.steps.back().step_ns);
    if (step == std::max(config.warmup, 1)) memory::tracker().reset_peak();
    result.steps.push_back(trainer.step(step));
    log.step(static_cast<int>(step) + 1, result.steps.back());
    if (observer.step) observer.step(static_cast<int>(step) + 1, result.steps.back());
    if (rank == 0) job->set_progress(rank, step + 1);
    if (step == 0) result.memory.first_step_peak = memory::tracker().peak();
    if (step >= config.warmup) {
      std::vector<comm::TrafficEntry> traffic = comm->traffic();
      if (step > config.warmup && !same_traffic(traffic, result.traffic)) {
        result.traffic_steady = false;
      }
      result.traffic = std::move(traffic);
      result.calls = comm->calls();
    }
    // The parity gate looks at one evaluation in the middle: weights must not stay stale after it.
    if (step == 0 && config.eval_every == 0) evaluate(1, config.batch * config.world_size);
    if (config.eval_every > 0 && (step + 1) % config.eval_every == 0 && step + 1 < steps) {
      evaluate(step + 1, config.eval_batches * config.batch * config.world_size);
      report_evaluation(/*last=*/false);
    }
  }
  report_memory(config, *strategy, result.memory);
  result.timeline = memory::tracker().timeline();
  if (config.eval_every > 0) {
    evaluate(steps, 0);
    report_evaluation(/*last=*/true);
  }
  trainer.share_buffers();
  result.digests = trainer.digests();
  result.whole_values = digest_whole(*model);
  result.buffer_digests = digest_buffers(*model);
  result.replicated = strategy->replicated();
  for (const Parameter* p : model->parameters()) {
    if (p->requires_grad() && !trainer.ever_used()[p->index()]) {
      result.unused_parameters.push_back(p->name());
    }
  }
  model->detach();
  return result;
}

}  // namespace

RankResult run_rank(const RunConfig& config, const Registry& registry, const comm::Seat& seat,
                    const RankObserver& observer) {
  try {
    return train_rank(config, registry, seat, observer);
  } catch (const c10::OutOfMemoryError&) {
    const std::string text = out_of_memory_text();
    if (text.empty()) throw;
    throw InvariantError(text);
  }
}

}  // namespace shardbench::train

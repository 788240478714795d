#include "common/train/rank_log.h"

#include <fmt/ostream.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>

#include "common/core/error.h"
#include "common/core/machine_info.h"

namespace shardbench::train {

RankLog::RankLog(const std::string& folder, const RunConfig& config, int rank,
                 std::string_view backend)
    : exceptions_(std::uncaught_exceptions()) {
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::string path = (std::filesystem::path(folder) / fmt::format("rank-{}.log", rank));
  file_.open(path, std::ios::app);
  if (!file_) {
    throw UserError::format("--rank-logs: cannot write {}: {}", path, std::strerror(errno));
  }
  const MachineInfo machine = machine_info();
  fmt::print(file_, "# {} rank {} of {} on {} (process {}, backend {}): {} under {}\n",
             machine.date, rank, config.world_size, machine.host_name, getpid(), backend,
             config.model.name, config.strategy);
  fmt::print(file_, "# step loss step_ms forward_ms backward_ms optimizer_ms exposed_ms\n");
  file_.flush();
}

RankLog::~RankLog() {
  if (!file_.is_open()) return;
  file_ << (std::uncaught_exceptions() > exceptions_ ? "# ended by an error\n" : "# done\n");
}

void RankLog::step(int number, const StepRecord& record) {
  if (!file_.is_open()) return;
  const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / 1e6; };
  fmt::print(file_, "{} {:.6f} {:.3f} {:.3f} {:.3f} {:.3f} {:.3f}\n", number, record.loss,
             ms(record.step_ns), ms(record.forward_ns), ms(record.backward_ns),
             ms(record.optimizer_ns), ms(record.exposed_ns));
  file_.flush();
}

}  // namespace shardbench::train

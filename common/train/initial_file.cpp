#include "common/train/initial_file.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "common/core/safetensors.h"
#include "common/models/build.h"
#include "common/modules/init.h"

namespace shardbench::train {

namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements that are drawn at once

void write_weights(const RunConfig& config, const std::string& path) {
  const std::unique_ptr<Model> model = models::build(config.model);
  std::vector<TensorEntry> entries;
  for (const Parameter* p : model->parameters()) entries.push_back({p->name(), "F32", p->dims()});
  SafetensorsWriter writer(path, entries);
  std::vector<float> piece(kPiece);
  for (const Parameter* p : model->parameters()) {
    for (std::int64_t begin = 0; begin < p->numel(); begin += kPiece) {
      const std::int64_t count = std::min(kPiece, p->numel() - begin);
      initialize(*p, config.seed, begin, count, piece.data());
      writer.write(piece.data(), static_cast<std::size_t>(count) * sizeof(float));
    }
  }
  writer.finish();
}

}  // namespace

InitialFile write_initial_weights(comm::Ranks& ranks, const RunConfig& config,
                                  const std::string& path) {
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(1000 * config.timeout_s));
  const comm::JobOutcome outcome = ranks.run_alone(timeout, [&](const comm::Seat&) {
    write_weights(config, path);
    return std::string("written");
  });
  InitialFile file;
  file.signal = outcome.signal;
  if (!outcome.ok) file.error = outcome.failure ? outcome.failure->message : "no result";
  return file;
}

}  // namespace shardbench::train

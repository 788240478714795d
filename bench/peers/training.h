#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/compare/compare.h"
#include "bench/peers/tools.h"
#include "bench/peers/unnamed_file.h"

namespace shardbench::bench {

/// Writes a model's initial weights to a file; returns why it could not and the signal that came
/// meanwhile.
struct WeightsError {
  std::string text;
  int signal = 0;
};
using WriteWeights =
    std::function<WeightsError(const train::RunConfig& config, const std::string& path)>;

/// Throws UserError naming what peers cannot do of the request's job: they know the model families
/// gpt2, llama and mlp, AdamW, and CPUs of one machine without an emulated network.
void refuse_unknown_to_peers(const Request& request);

/// Trains in other frameworks, one process tree per run. Weights are written once for all runs of
/// the same model and seed, tokens once for runs of the same work.
class PeerTrainer {
 public:
  PeerTrainer(PeerTools tools, WriteWeights write_weights);

  PeerRun run(const PeerKind& kind, const train::RunConfig& config,
              const train::Progress& progress);

 private:
  WeightsError ensure_weights(const train::RunConfig& config);
  void ensure_tokens(const train::RunConfig& config);

  PeerTools tools_;
  WriteWeights write_weights_;
  std::optional<UnnamedFile> weights_;
  std::optional<UnnamedFile> tokens_;
  std::string tokens_of_;  ///< what the tokens belong to
};

}  // namespace shardbench::bench

#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "common/train/config.h"
#include "common/train/result.h"

namespace shardbench::train {

/// What one rank did and when, in a file of its own: FOLDER/rank-R.log, added to when it is there.
/// Every line is written out at once, so that it is there when the rank dies. Does nothing where
/// `folder` is empty.
class RankLog {
 public:
  /// Makes the folder. Throws UserError when the file cannot be written.
  RankLog(const std::string& folder, const RunConfig& config, int rank, std::string_view backend);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  /// `number` counts from 1, warm-up included.
  void step(int number, const StepRecord& record);

 private:
  std::ofstream file_;
  int exceptions_;
};

}  // namespace shardbench::train

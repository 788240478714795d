#pragma once

#include <algorithm>
#include <vector>

namespace shardbench::train {

/// Learns in which order units are entered and says which come next. The first pass predicts
/// nothing; later ones predict by the pass before. A wrong guess costs time, never correctness.
class PrefetchOrder {
 public:
  /// The unit is being entered: returns up to `depth` units expected after it.
  std::vector<int> enter(int unit, int depth) {
    if (!known_.empty() && unit == known_.front() && !current_.empty()) restart();
    current_.push_back(unit);
    const auto here = std::find(known_.begin() + cursor_, known_.end(), unit);
    if (here == known_.end()) return {};
    cursor_ = here - known_.begin() + 1;
    const auto left = static_cast<std::ptrdiff_t>(known_.size()) - cursor_;
    const auto take = std::min<std::ptrdiff_t>(depth, left);
    return {known_.begin() + cursor_, known_.begin() + cursor_ + take};
  }

  /// A pass is over: what it did is what the next one is expected to do.
  void restart() {
    if (!current_.empty()) known_ = std::move(current_);
    current_.clear();
    cursor_ = 0;
  }

 private:
  std::vector<int> known_;
  std::vector<int> current_;
  std::ptrdiff_t cursor_ = 0;
};

}  // namespace shardbench::train

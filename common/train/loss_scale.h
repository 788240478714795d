#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shardbench::train {

/// `--loss-scale`: the loss is multiplied by it before backward, so that small gradients survive in
/// fp16, and gradients are divided by it inside the optimizer.
struct LossScale {
  bool dynamic = true;  ///< halved by an overflow, doubled after kGoodSteps steps without one
  double value = 65536;

  static constexpr double kLeast = 1;
  static constexpr double kMost = 16777216;  ///< 2^24
  static constexpr int kGoodSteps = 2000;

  /// "dynamic" or a number from 1 to 2^24. Throws UserError with the valid form.
  static LossScale parse(const std::string& text);
  std::string to_string() const;  ///< as parse takes it
};

/// The scale of a run as it goes on; without one the scale is 1 and nothing is ever skipped. All
/// ranks tell it the same, so all have the same scale.
class LossScaler {
 public:
  explicit LossScaler(const std::optional<LossScale>& scale) : scale_(scale) {
    if (scale_) value_ = scale_->value;
  }

  bool active() const { return scale_.has_value(); }
  /// Of the step to come.
  double value() const { return value_; }
  /// A step is over; `overflow`: a gradient was no finite number on some rank, so it was skipped.
  void note_step(bool overflow);

 private:
  std::optional<LossScale> scale_;
  double value_ = 1;
  int good_steps_ = 0;  ///< since the scale last changed
};

}  // namespace shardbench::train

#include "common/train/loss_scale.h"

#include <algorithm>
#include <charconv>

#include "common/core/error.h"

namespace shardbench::train {

LossScale LossScale::parse(const std::string& text) {
  LossScale scale;
  if (text == "dynamic") return scale;
  scale.dynamic = false;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, scale.value);
  if (error != std::errc{} || rest != end || !(scale.value >= kLeast && scale.value <= kMost)) {
    throw UserError::format(
        "--loss-scale '{}': give dynamic, or a number from {} to {} such as 1024", text, kLeast,
        kMost);
  }
  return scale;
}

std::string LossScale::to_string() const {
  return dynamic ? std::string("dynamic") : fmt::format("{}", value);
}

void LossScaler::note_step(bool overflow) {
  if (!scale_ || !scale_->dynamic) return;
  if (overflow) {
    value_ = std::max(LossScale::kLeast, value_ / 2);
    good_steps_ = 0;
  } else if (++good_steps_ == LossScale::kGoodSteps) {
    value_ *= 2;
    good_steps_ = 0;
  }
}

}  // namespace shardbench::train

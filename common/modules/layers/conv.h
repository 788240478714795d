#pragma once

#include <cstdint>

#include "common/modules/module.h"
#include "common/ops/conv.h"

namespace shardbench {

/// The same in every spatial dimension.
struct ConvOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
};

/// Convolution over one to three spatial dimensions; the classes below fix how many. Parameters:
/// weight [out, in, kernel...], uniform in (-b, b) with b = 1/sqrt(in * kernel elements) as torch's
/// starts, and, unless left out, bias [out], which starts at 0. Keeps its input for the weight's
/// gradient.
class Conv : public Module {
 protected:
  Conv(std::int64_t dims, std::int64_t in, std::int64_t out, const ConvOptions& options);

  /// (x [N, in, spatial...]) -> [N, out, spatial'...].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  ops::ConvSteps steps_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

class Conv1d : public Conv {
 public:
  Conv1d(std::int64_t in, std::int64_t out, const ConvOptions& options)
      : Conv(1, in, out, options) {}
  std::string_view class_name() const override { return "Conv1d"; }
};

class Conv2d : public Conv {
 public:
  Conv2d(std::int64_t in, std::int64_t out, const ConvOptions& options)
      : Conv(2, in, out, options) {}
  std::string_view class_name() const override { return "Conv2d"; }
};

class Conv3d : public Conv {
 public:
  Conv3d(std::int64_t in, std::int64_t out, const ConvOptions& options)
      : Conv(3, in, out, options) {}
  std::string_view class_name() const override { return "Conv3d"; }
};

}  // namespace shardbench
